/** Extension of a finished run by labels and steps. */

import type { ExperimentUpdate, OwnerExperimentDetail } from './api-types'

const FACTOR = 1.5

/**
 * Labels and environment steps of a whole run; labels are null if it has no target for them, and
 * steps are 0 if it does not train.
 */
export interface RunTargets {
  labels: number | null
  steps: number
}

type Extendable = Pick<OwnerExperimentDetail, 'step' | 'num_steps' | 'progress' | 'control'>

/** Return the labels and steps that a run has reached or aims at. */
export const targetsOf = ({ step, num_steps, progress }: Extendable): RunTargets => ({
  labels: progress.target === null ? null : Math.max(progress.target, progress.answered),
  steps: Math.max(step, num_steps),
})

/** Return the targets that the form proposes: half as much again. */
export const proposeTargets = ({ labels, steps }: RunTargets): RunTargets => ({
  labels: labels === null ? null : Math.ceil(FACTOR * labels),
  steps: Math.ceil(FACTOR * steps),
})

export const extensionOf = ({ labels, steps }: RunTargets): ExperimentUpdate => ({
  ...(steps > 0 && { target_steps: steps }),
  ...(labels !== null && { target_labels: labels }),
})

/** Return whether the owner has extended a run that has not continued yet. */
export const isExtended = (detail: Extendable): boolean => {
  const { control, progress } = detail
  const { steps } = targetsOf(detail)
  return steps > 0
    ? (control.target_steps ?? 0) > steps
    : (control.target_labels ?? 0) > progress.answered
}
