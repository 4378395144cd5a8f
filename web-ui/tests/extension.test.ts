import { describe, expect, it } from 'vitest'

import { extensionOf, isExtended, proposeTargets, targetsOf } from '../src/lib/extension'

const progress = { mine: 0, answered: 60, asked: 65, target: 60, waiting: 5, clips: null, newest_label: 0 }
const control = { state: 'run' as const, seconds_between: null, target_labels: null, target_steps: null, reward: null }
const finished = { step: 400_001, num_steps: 400_000, progress, control }

describe('targetsOf', () => {
  it('is at least what the run has reached', () => {
    expect(targetsOf(finished)).toEqual({ labels: 60, steps: 400_001 })
    const answered = { ...finished, progress: { ...progress, answered: 70 } }
    expect(targetsOf(answered).labels).toBe(70)
  })

  it('has no labels without a target', () => {
    const targets = targetsOf({ ...finished, progress: { ...progress, target: null } })
    expect(targets.labels).toBeNull()
    expect(extensionOf(proposeTargets(targets))).toEqual({ target_steps: 600_002 })
  })
})

describe('proposeTargets', () => {
  it('adds half of the labels and steps', () => {
    const proposed = proposeTargets({ labels: 61, steps: 400_000 })
    expect(proposed).toEqual({ labels: 92, steps: 600_000 })
    expect(extensionOf(proposed)).toEqual({ target_labels: 92, target_steps: 600_000 })
  })
})

describe('a run that only collects labels', () => {
  const collected = { ...finished, step: 0, num_steps: 0, progress: { ...progress, asked: 60, waiting: 0 } }

  it('is extended by labels alone', () => {
    const proposed = proposeTargets(targetsOf(collected))
    expect(extensionOf(proposed)).toEqual({ target_labels: 90 })
  })

  it('is extended until it has collected the labels', () => {
    const extended = { ...collected, control: { ...control, target_labels: 90 } }
    expect(isExtended(collected)).toBe(false)
    expect(isExtended(extended)).toBe(true)
    expect(isExtended({ ...extended, progress: { ...collected.progress, answered: 90 } })).toBe(false)
  })
})

describe('isExtended', () => {
  it('is true while the run has not continued to its new steps', () => {
    const extended = { ...finished, control: { ...control, target_steps: 600_000 } }
    expect(isExtended(finished)).toBe(false)
    expect(isExtended(extended)).toBe(true)
    expect(isExtended({ ...extended, num_steps: 600_000 })).toBe(false)
  })
})
