import { expect, it, vi } from 'vitest'

import { getMetrics, ServerUnreachable } from '../src/lib/api'
import type { MetricsEntry } from '../src/lib/api-types'
import { ExperimentState } from '../src/lib/experiment-state.svelte'
import { FakeSource, stubBrowser } from './fakes'

vi.mock('../src/lib/api', async (original) => ({ ...(await original()), getMetrics: vi.fn() }))
vi.mock('../src/lib/owner-api', () => ({
  getOwnerExperiment: () => Promise.resolve({ name: 'hop', latest_episode: null }),
}))

const row = (id: number, step = id) => ({ id, step }) as MetricsEntry

it('reads the metrics before those of an event, and keeps newer ones than a response has', async () => {
  stubBrowser()
  const state = new ExperimentState('hop')
  const ids = () => state.rows.map(({ id }) => id)
  const reading = vi.mocked(getMetrics)
  reading.mockRejectedValueOnce(new ServerUnreachable('offline'))
  const stop = state.feed.start()
  FakeSource.open[0]!.send('metrics', row(3))
  await vi.waitUntil(() => state.feed.failure !== null)
  expect(ids()).toEqual([3])
  reading.mockResolvedValueOnce([row(1), row(2)])
  await state.feed.read()
  expect([ids(), reading.mock.lastCall]).toEqual([[1, 2, 3], ['hop', 0]])
  reading.mockResolvedValueOnce([row(3), row(4)])
  await state.feed.read()
  expect([ids(), reading.mock.lastCall]).toEqual([[1, 2, 3, 4], ['hop', 2]])
  // The run continues from its checkpoint at step 1.
  reading.mockResolvedValueOnce([row(5, 2)])
  await state.feed.read()
  expect(ids()).toEqual([1, 5])
  stop()
})

it.each([
  ['hop-2', 'hop-2'],
  ['two words', "'two words'"],
  ['$HOME', "'$HOME'"],
  ["Ada's", "'Ada'\\''s'"],
])('quotes the name %s for a shell', (name, argument) => {
  expect(new ExperimentState(name).argument).toBe(argument)
})
