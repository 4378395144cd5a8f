import { expect, it, vi } from 'vitest'

import { getMetrics } from '../src/lib/api'
import type { MetricsEntry } from '../src/lib/api-types'
import { ExperimentState } from '../src/lib/experiment-state.svelte'
import { sendSummary, settle, stubBrowser } from './fakes'

vi.mock('../src/lib/api', async (original) => ({ ...(await original()), getMetrics: vi.fn() }))
vi.mock('../src/lib/owner-api', () => ({
  getOwnerExperiment: () => Promise.resolve({ name: 'hop', latest_episode: null }),
}))

const row = (id: number, step = id) => ({ id, step }) as MetricsEntry

it('reads the metrics after the last ones with each summary, and replaces those of a resumed run', async () => {
  stubBrowser()
  const state = new ExperimentState('hop')
  const reading = vi.mocked(getMetrics)
  const read = async (rows: MetricsEntry[], causeRead: () => void) => {
    reading.mockResolvedValueOnce(rows)
    causeRead()
    await settle()
    return [state.rows.map(({ id }) => id), reading.mock.lastCall]
  }
  let stop = () => {}
  expect(await read([row(1), row(2)], () => (stop = state.feed.start()))).toEqual([[1, 2], ['hop', 0]])
  expect(await read([row(3)], () => sendSummary({ name: 'hop', latest_episode: null }))).toEqual([[1, 2, 3], ['hop', 2]])
  // The run continues from its checkpoint at step 1.
  expect(await read([row(4, 2)], () => sendSummary({ name: 'hop', latest_episode: null }))).toEqual([[1, 4], ['hop', 3]])
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
