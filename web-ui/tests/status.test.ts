import { describe, expect, it } from 'vitest'

import { describeStatus } from '../src/lib/status'

const progress = { mine: 0, answered: 209, asked: 214, target: null, waiting: 5, message: '' }
const status = {
  phase: 'training' as const,
  message: 'training',
  step: 1_200_000,
  num_steps: 3_000_000,
  steps_per_second: 1_000,
  progress,
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

  it('counts the labels that a waiting run needs', () => {
    expect(describeStatus({ ...status, phase: 'waiting' })).toBe('Training waits for 5 more labels.')
  })

  it('returns the message of the service for a lost run', () => {
    expect(describeStatus({ ...status, phase: 'lost', message: 'No reports.' })).toBe('No reports.')
  })
})
