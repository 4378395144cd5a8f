import { expect, it } from 'vitest'

import { extensionOf, isExtended, proposeTargets, targetsOf } from '../src/lib/extension'

const progress = { mine: 0, answered: 60, asked: 65, target: 60, waiting: 5, clips: null, newest_label: 0 }
const control = { state: 'run' as const, seconds_between: null, target_labels: null, target_steps: null, reward: null }
const finished = { step: 400_001, num_steps: 400_000, progress, control }

it('has targets that are at least what the run has reached, and no labels without a target', () => {
  expect(targetsOf(finished)).toEqual({ labels: 60, steps: 400_001 })
  expect(targetsOf({ ...finished, progress: { ...progress, answered: 70 } }).labels).toBe(70)
  const targets = targetsOf({ ...finished, progress: { ...progress, target: null } })
  expect(extensionOf(proposeTargets(targets))).toEqual({ target_steps: 600_002 })
})

it('proposes half of the labels and steps more; a run that only collects has no steps', () => {
  const proposed = proposeTargets({ labels: 61, steps: 400_000 })
  expect(extensionOf(proposed)).toEqual({ target_labels: 92, target_steps: 600_000 })
  const collected = { ...finished, step: 0, num_steps: 0 }
  expect(extensionOf(proposeTargets(targetsOf(collected)))).toEqual({ target_labels: 90 })
})

it('is extended until the run has continued to its new steps or labels', () => {
  const extended = { ...finished, control: { ...control, target_steps: 600_000 } }
  expect([isExtended(finished), isExtended(extended)]).toEqual([false, true])
  expect(isExtended({ ...extended, num_steps: 600_000 })).toBe(false)
  const collects = { ...finished, step: 0, num_steps: 0, control: { ...control, target_labels: 90 } }
  expect(isExtended(collects)).toBe(true)
  expect(isExtended({ ...collects, progress: { ...progress, answered: 90 } })).toBe(false)
})
