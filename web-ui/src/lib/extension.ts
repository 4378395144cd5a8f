/** Extension of a finished run by labels, and by as many steps as they took so far. */

import type { ExperimentUpdate, OwnerExperimentDetail } from './api-types'

export const MORE_LABELS = 20
/** Extension of a run without labels. */
const FACTOR = 1.5

type Extendable = Pick<OwnerExperimentDetail, 'step' | 'num_steps' | 'progress' | 'control'>

/** Return the steps that a run has reached or aims at; 0 if it does not train. */
const stepsOf = ({ step, num_steps }: Extendable): number => Math.max(step, num_steps)

/** Return the update that asks for 20 more labels, or for half as many steps again in a run without labels. */
export function extensionOf(detail: Extendable): ExperimentUpdate {
  const { target, answered } = detail.progress
  const steps = stepsOf(detail)
  if (target === null) return { target_steps: Math.ceil(FACTOR * steps) }
  const labels = Math.max(target, answered)
  return {
    target_labels: labels + MORE_LABELS,
    ...(steps > 0 && { target_steps: steps + Math.ceil((MORE_LABELS * steps) / Math.max(labels, 1)) }),
  }
}

/** Return whether the owner has extended a run that has not continued yet. */
export const isExtended = (detail: Extendable): boolean => {
  const { control, progress } = detail
  const steps = stepsOf(detail)
  return steps > 0
    ? (control.target_steps ?? 0) > steps
    : (control.target_labels ?? 0) > progress.answered
}
