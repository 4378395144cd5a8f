import { describe, expect, it } from 'vitest'

import type { Episode } from '../src/lib/api-types'
import { describeNoEpisode, describeStatus, milestoneOf } from '../src/lib/status'

const progress = { mine: 0, answered: 209, asked: 214, target: null, waiting: 5, clips: null, newest_label: 0 }
const status = {
  phase: 'training' as const,
  message: 'training',
  step: 1_200_000,
  num_steps: 3_000_000,
  steps_per_second: 1_000,
  progress,
  num_missing: 0,
  waiting_since: null,
}

describe('describeStatus', () => {
  const collects = { step: 0, num_steps: 0, steps_per_second: null }

  it.each([
    [{}, '1.2M of 3M steps, about 30 min left. 5 comparisons to label.'],
    [{ steps_per_second: null }, '1.2M of 3M steps. 5 comparisons to label.'],
    [{ num_steps: 0 }, '1.2M steps. 5 comparisons to label.'],
    [{ phase: 'waiting' as const }, 'The run waits for 5 more labels.'],
    [{ phase: 'finishing' as const }, 'Using 209 labels, and saving.'],
    [{ phase: 'finished' as const }, 'Finished 3M steps with 209 labels.'],
    [{ ...collects, phase: 'finished' as const }, 'Finished with 209 labels.'],
    [{ ...collects, phase: 'paused' as const }, 'Paused. You can still label.'],
    [{ ...collects, phase: 'stopped' as const }, 'Stopped. Run the same command to continue.'],
    [{ phase: 'lost' as const, message: 'No reports.' }, 'No reports.'],
  ])('describes %j as "%s"', (more, text) => {
    expect(describeStatus({ ...status, ...more })).toBe(text)
  })

  it.each(['training starts', 'training continues', 'the run ends'])('counts the labels until %s, and since when', (then) => {
    const text = `7 more labels until ${then}`
    const message = `8 more labels until ${then}; clips wait for their upload since 12:00:00`
    const waiting = { ...status, message, phase: 'waiting' as const, num_missing: 7 }
    expect(describeStatus(waiting)).toBe(`${text}.`)
    const waiting_since = new Date().toISOString()
    const time = new Date(waiting_since).toTimeString().slice(0, 5)
    expect(describeStatus({ ...waiting, waiting_since })).toBe(`${text}, since ${time}.`)
  })
})

describe('milestoneOf', () => {
  it('names each milestone once, when it is reached while the page is open', () => {
    const summaries = [[0, false], [1, false], [2, false], [3, true], [4, true]] as const
    const reached = summaries.map(([num_fits, beats_untrained]) => ({ num_fits, beats_untrained }))
    const named = reached.map((now, i) => milestoneOf(reached[i - 1] ?? null, now))
    expect(named).toEqual(['', 'Training starts', '', 'Your agent beats the untrained one', ''])
  })
})

it.each([
  ['Loading…', null, null],
  ['Loading…', { latest_episode: {} as Episode, is_running: true }, null],
  ['The first episode appears here after it ends.', { latest_episode: null, is_running: true }, null],
  ['No episode to show. Where episodes are videos, only runs with -p human, --serve or --videos record them.', { latest_episode: null, is_running: false }, null],
  ['deleted', { latest_episode: {} as Episode, is_running: true }, new Error('deleted')],
])('explains %j where an episode would be', (text, summary, failure) => {
  expect(describeNoEpisode(summary, failure)).toBe(text)
})
