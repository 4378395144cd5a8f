import { describe, expect, it } from 'vitest'

import type { Episode } from '../src/lib/api-types'
import { describeNoEpisode, describeStatus, hasStartedTraining, missingLabels, stepsText, warningKind } from '../src/lib/status'

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
  it('gives progress, time left and waiting comparisons while training', () => {
    expect(describeStatus(status)).toBe(
      '1.2M of 3M steps, about 30 min left. 5 comparisons to label.',
    )
  })

  it('omits the time left if the speed is unknown', () => {
    const text = describeStatus({
      ...status,
      steps_per_second: null,
      progress: { ...progress, waiting: 0 },
    })
    expect(text).toBe('1.2M of 3M steps.')
  })

  it('gives the steps of a run whose total is not known', () => {
    expect(describeStatus({ ...status, num_steps: 0 })).toBe('1.2M steps. 5 comparisons to label.')
  })

  it('counts the labels that a waiting run needs', () => {
    expect(describeStatus({ ...status, phase: 'waiting' })).toBe('The run waits for 5 more labels.')
  })

  it('states which labels a run waits for', () => {
    const message = '7 more labels until training starts'
    const waiting = { ...status, phase: 'waiting' as const, num_missing: 7, message }
    expect(describeStatus(waiting)).toBe(`${message}.`)
    expect(missingLabels(waiting)).toBe(message)
  })

  it('states since when a run waits', () => {
    const waiting_since = new Date().toISOString()
    const message = '7 more labels until training starts'
    const waiting = { ...status, phase: 'waiting' as const, num_missing: 7, message, waiting_since }
    const time = new Date(waiting_since).toTimeString().slice(0, 5)
    expect(describeStatus(waiting)).toBe(`${message}, since ${time}.`)
  })

  it('omits the steps of a run that only collects labels', () => {
    const collects = { ...status, step: 0, num_steps: 0, steps_per_second: null }
    expect(describeStatus({ ...collects, phase: 'paused' })).toBe('Paused. You can still label.')
    expect(describeStatus({ ...collects, phase: 'stopped' })).toBe(
      'Stopped and saved. Run the same command to continue.',
    )
    expect(describeStatus({ ...collects, phase: 'finished' })).toBe('Finished with 209 labels.')
    expect(describeStatus({ ...status, phase: 'finished' })).toBe('Finished 3M steps with 209 labels.')
    expect(stepsText(collects)).toBe('')
  })

  it('returns the message of the service for a failed run', () => {
    const message = 'Failed: the loss is nan.'
    expect(describeStatus({ ...status, phase: 'failed', message })).toBe(message)
  })

  it('returns the message of the service for a lost run', () => {
    expect(describeStatus({ ...status, phase: 'lost', message: 'No reports.' })).toBe('No reports.')
  })
})

describe('missingLabels', () => {
  it('is null for a run that waits for no label or does not wait', () => {
    expect(missingLabels({ phase: 'waiting', num_missing: 0, message: 'Rendering.' })).toBeNull()
    expect(missingLabels({ phase: 'training', num_missing: 3, message: 'training' })).toBeNull()
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
