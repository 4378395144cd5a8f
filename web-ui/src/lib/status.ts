/** What an experiment is doing, in one sentence. */

import { duration, errorText, localTime, plural, short } from './format'
import type { ExperimentSummary } from './api-types'

type Status = Pick<
  ExperimentSummary,
  'phase' | 'message' | 'step' | 'num_steps' | 'steps_per_second' | 'progress' | 'num_missing' | 'waiting_since'
>

/**
 * Return "1.2M of 3M steps", or "1.2M steps" if their total is not known; empty for a run that does not
 * train, such as one that only collects labels.
 */
export const stepsText = ({ step, num_steps }: Pick<Status, 'step' | 'num_steps'>): string =>
  num_steps + step > 0 ? `${short(step)}${num_steps > 0 ? ` of ${short(num_steps)}` : ''} steps` : ''

export function describeStatus(status: Status): string {
  const { phase, num_steps, progress } = status
  const steps = stepsText(status)
  const atSteps = steps === '' ? '' : ` at ${steps}`
  switch (phase) {
    case 'training':
      return describeTraining(status, steps)
    case 'waiting':
      return describeWaiting(status)
    case 'fitting':
      return `Fitting the reward predictor to ${plural(progress.answered, 'label')}.`
    case 'random':
      return 'Taking random actions to collect the first clips.'
    case 'paused':
      return `Paused${atSteps}. You can still label.`
    case 'finishing':
      return `Using ${plural(progress.answered, 'label')}, and saving.`
    case 'finished':
      return `Finished ${num_steps > 0 ? `${short(num_steps)} steps ` : ''}with ${plural(progress.answered, 'label')}.`
    case 'stopped':
      return `Stopped${atSteps}. Run the same command to continue.`
    case 'starting':
      return 'Starting. The first comparisons arrive in a few seconds.'
    default:
      return status.message
  }
}

function describeWaiting(status: Status): string {
  const since = status.waiting_since === null ? '' : `, since ${localTime(status.waiting_since)}`
  if (status.num_missing > 0) return `${missingText(status, status.num_missing)}${since}.`
  const { waiting } = status.progress
  return waiting > 0 ? `The run waits for ${plural(waiting, 'more label')}${since}.` : 'Rendering the next clips.'
}

/** Return what follows after a number of labels, as the run says: "7 more labels until training starts". */
export const missingText = ({ message }: Pick<Status, 'message'>, numMissing: number): string =>
  plural(numMissing, 'more label') + (/ until [^;]*/.exec(message)?.[0] ?? '')

/** Return why no episode is shown. */
export function describeNoEpisode(
  summary: (Pick<ExperimentSummary, 'latest_episode' | 'is_running'> & { metrics?: Record<string, unknown> }) | null,
  failure: unknown,
): string {
  if (failure !== null) return errorText(failure)
  if (summary === null || summary.latest_episode !== null) return 'Loading…'
  if (summary.is_running && !summary.metrics?.episodes) return 'The first episode appears here after it ends.'
  return 'No episode to show. Where episodes are videos, only runs with -p human, --serve or --videos record them.'
}

type Milestones = Pick<ExperimentSummary, 'num_fits' | 'beats_untrained'>

/** Return the milestone that a run has reached between two summaries, or an empty string. */
export function milestoneOf(before: Milestones | null, now: Milestones): string {
  if (before === null) return ''
  if (!before.beats_untrained && now.beats_untrained) return 'Your agent beats the untrained one'
  return before.num_fits === 0 && now.num_fits > 0 ? 'Training starts' : ''
}

/** Return whether there is something to label, now or later: a program's labels need no person. */
export const isLabelled = ({ phase, progress, asks_people }: ExperimentSummary): boolean =>
  progress.waiting > 0 || (asks_people && phase !== 'finished')

/** Return the seconds of training that are left; 0 if they are not known. */
export const trainingLeft = ({ step, num_steps, steps_per_second }: Status): number =>
  steps_per_second ? Math.max(0, (num_steps - step) / steps_per_second) : 0

function describeTraining(status: Status, steps: string): string {
  const { progress } = status
  const left_s = trainingLeft(status)
  const timeLeft = left_s > 0 ? `, about ${duration(left_s)} left` : ''
  const waiting = progress.waiting > 0 ? ` ${plural(progress.waiting, 'comparison')} to label.` : ''
  return `${steps}${timeLeft}.${waiting}`
}
