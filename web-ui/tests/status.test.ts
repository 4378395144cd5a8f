import { describe, expect, it } from 'vitest'

import type { Episode } from '../src/lib/api-types'
import { describeNoEpisode, describeStatus, hasStartedTraining, warningKind } from '../src/lib/status'

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
    [{ phase: 'finished' as const }, 'Finished 3M steps with 209 labels.'],
    [{ ...collects, phase: 'finished' as const }, 'Finished with 209 labels.'],
    [{ ...collects, phase: 'paused' as const }, 'Paused. You can still label.'],
    [{ ...collects, phase: 'stopped' as const }, 'Stopped and saved. Run the same command to continue.'],
    [{ phase: 'lost' as const, message: 'No reports.' }, 'No reports.'],
  ])('describes %j as "%s"', (more, text) => {
    expect(describeStatus({ ...status, ...more })).toBe(text)
  })

  it.each([
    [{ step: 0 }, '7 more labels until training starts'],
    [{ step: 10 }, '7 more labels until training continues'],
    [{ step: 0, num_steps: 0 }, '7 more labels until the run ends'],
  ])('counts the labels until a run at %j goes on, and since when', (steps, text) => {
    const waiting = { ...status, ...steps, phase: 'waiting' as const, num_missing: 7 }
    expect(describeStatus(waiting)).toBe(`${text}.`)
    const waiting_since = new Date().toISOString()
    const time = new Date(waiting_since).toTimeString().slice(0, 5)
    expect(describeStatus({ ...waiting, waiting_since })).toBe(`${text}, since ${time}.`)
  })
})

describe('hasStartedTraining', () => {
  it('is true once, at the first training after the labels before it', () => {
    const phases = ['random', 'waiting', 'fitting', 'training', 'training'] as const
    const summaries = phases.map((phase, i) => ({ phase, step: i === 4 ? 2048 : 0 }))
    const starts = summaries.map((now, i) => hasStartedTraining(summaries[i - 1] ?? null, now))
    expect(starts).toEqual([false, false, false, true, false])
  })

  it('is false for training that continues', () => {
    expect(hasStartedTraining({ phase: 'waiting', step: 500 }, { phase: 'training' })).toBe(false)
  })
})

describe('warningKind', () => {
  it('is the same for a warning with other numbers', () => {
    expect(warningKind('Only 45% of 20 answers')).toBe(warningKind('Only 51% of 40 answers'))
  })
})

it.each([
  ['Loading…', null, null],
  ['Loading…', { latest_episode: {} as Episode, is_running: true }, null],
  ['The first episode appears here after it ends.', { latest_episode: null, is_running: true }, null],
  ['This run has no episode to show.', { latest_episode: null, is_running: false }, null],
  ['deleted', { latest_episode: {} as Episode, is_running: true }, new Error('deleted')],
])('explains %j where an episode would be', (text, summary, failure) => {
  expect(describeNoEpisode(summary, failure)).toBe(text)
})
