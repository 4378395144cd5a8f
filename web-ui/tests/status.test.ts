import { describe, expect, it } from 'vitest'

import { describeStatus } from '../src/lib/status'

const progress = { mine: 0, answered: 209, asked: 214, target: null, waiting: 5, message: '' }
const facts = {
  phase: 'training' as const,
  message: 'training',
  step: 1_200_000,
  num_steps: 3_000_000,
  steps_per_second: 1_000,
  progress,
}

describe('what an experiment does', () => {
  it('says how far the training is, how long it takes still, and what waits', () => {
    expect(describeStatus(facts)).toBe(
      '1.2M of 3M steps, about 30 min left; 5 comparisons wait meanwhile.',
    )
  })

  it('says no time left where the speed is not known', () => {
    const said = describeStatus({ ...facts, steps_per_second: null, progress: { ...progress, waiting: 0 } })
    expect(said).toBe('1.2M of 3M steps.')
  })

  it('says what a waiting agent waits for', () => {
    expect(describeStatus({ ...facts, phase: 'waiting' })).toBe(
      'The agent rests until 5 more comparisons are answered.',
    )
  })

  it('leaves the service the word where it knows more', () => {
    expect(describeStatus({ ...facts, phase: 'lost', message: 'Silent.' })).toBe('Silent.')
  })
})
