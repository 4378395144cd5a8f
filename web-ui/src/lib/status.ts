/** What an experiment is doing, in one sentence. */

import { duration, plural, short } from './format'
import type { ExperimentSummary } from './api-types'

type Status = Pick<ExperimentSummary, 'phase' | 'message' | 'step' | 'num_steps' | 'steps_per_second' | 'progress'>

export function describeStatus(status: Status): string {
  const { phase, step, num_steps, progress } = status
  const steps = `${short(step)} of ${short(num_steps)} steps`
  switch (phase) {
    case 'training':
      return describeTraining(status, steps)
    case 'waiting':
      return progress.waiting > 0
        ? `Training waits for ${plural(progress.waiting, 'more label')}.`
        : 'Rendering the next clips.'
    case 'fitting':
      return `Fitting the reward predictor to ${plural(progress.answered, 'label')}.`
    case 'random':
      return 'Taking random actions to collect the first clips.'
    case 'paused':
      return `Paused at ${steps}. You can still label.`
    case 'finished':
      return `Finished ${short(num_steps)} steps with ${plural(progress.answered, 'label')}.`
    case 'stopped':
      return `Stopped and saved at ${steps}. Run the same command to continue.`
    case 'starting':
      return 'Starting. The first comparisons arrive in a few seconds.'
    default:
      return status.message
  }
}

function describeTraining({ step, num_steps, steps_per_second, progress }: Status, steps: string): string {
  const left_s = steps_per_second ? (num_steps - step) / steps_per_second : 0
  const timeLeft = left_s > 0 ? `, about ${duration(left_s)} left` : ''
  const waiting = progress.waiting > 0 ? ` ${plural(progress.waiting, 'comparison')} to label.` : ''
  return `${steps}${timeLeft}.${waiting}`
}
