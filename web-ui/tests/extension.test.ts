import { expect, it } from 'vitest'

import { extensionOf, isExtended } from '../src/lib/extension'

const progress = { mine: 0, answered: 60, asked: 65, target: 60, waiting: 5, clips: null, newest_label: 0 }
const control = { state: 'run' as const, seconds_between: null, target_labels: null, target_steps: null, reward: null }
const finished = { step: 400_001, num_steps: 400_000, progress, control }

it.each([
  // 20 labels take a third of the steps of 60.
  [{ step: 300_000, num_steps: 300_000 }, { target_labels: 80, target_steps: 400_000 }],
  [{ step: 300_001 }, { target_labels: 80, target_steps: 533_334 }],
  [{ step: 0, num_steps: 0 }, { target_labels: 80 }],
  [{ progress: { ...progress, answered: 80 }, step: 400_000 }, { target_labels: 100, target_steps: 500_000 }],
  [{ progress: { ...progress, target: null } }, { target_steps: 600_002 }],
])('extends a run at %j by 20 labels and the steps that so many took', (more, update) => {
  expect(extensionOf({ ...finished, ...more })).toEqual(update)
})

it('is extended until the run has continued to its new steps or labels', () => {
  const extended = { ...finished, control: { ...control, target_steps: 600_000 } }
  expect([isExtended(finished), isExtended(extended)]).toEqual([false, true])
  expect(isExtended({ ...extended, num_steps: 600_000 })).toBe(false)
  const collects = { ...finished, step: 0, num_steps: 0, control: { ...control, target_labels: 90 } }
  expect(isExtended(collects)).toBe(true)
  expect(isExtended({ ...collects, progress: { ...progress, answered: 90 } })).toBe(false)
})
