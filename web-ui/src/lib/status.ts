/** What an experiment is doing, in one sentence. */

import { duration, errorText, localTime, plural, short } from './format'
import type { ExperimentSummary } from './api-types'
import type { LabellingSession } from './labelling.svelte'

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
    case 'finished':
      return `Finished ${num_steps > 0 ? `${short(num_steps)} steps ` : ''}with ${plural(progress.answered, 'label')}.`
    case 'stopped':
      return `Stopped and saved${atSteps}. Run the same command to continue.`
    case 'starting':
      return 'Starting. The first comparisons arrive in a few seconds.'
    default:
      return status.message
  }
}

function describeWaiting(status: Status): string {
  const since = status.waiting_since === null ? '' : `, since ${localTime(status.waiting_since)}`
  const missing = missingLabels(status)
  if (missing !== null) return `${missing}${since}.`
  const { waiting } = status.progress
  return waiting > 0 ? `The run waits for ${plural(waiting, 'more label')}${since}.` : 'Rendering the next clips.'
}

/** Return "7 more labels until training starts", or null if training does not wait for labels. */
export const missingLabels = (
  { phase, num_missing, message }: Pick<Status, 'phase' | 'num_missing' | 'message'>,
): string | null => (phase === 'waiting' && num_missing > 0 ? message : null)

/** Why no comparison is available; the service explains the other phases. */
const IDLE_TEXTS: Partial<Record<ExperimentSummary['phase'], string>> = {
  starting: 'The run is starting. The first comparisons come in a few seconds.',
  random: 'The agent acts at random to collect the first clips. The first comparisons come in a few seconds.',
  waiting: 'The next clips are being rendered. They come in a few seconds.',
  fitting: 'The reward predictor is being fitted to the labels.',
  training: 'The agent is training. The next comparisons come by the label schedule.',
  paused: 'The run is paused. The next comparisons come when its owner resumes it.',
  stopped: 'The run was stopped and saved. The next comparisons come when it is started again.',
}

/** Return why no comparison is on screen, as a heading and a text. */
export function describeIdle(
  { summary, labels, isThrottled, isHeldByOthers }: LabellingSession,
  signInHint: string,
): [heading: string, text: string] {
  if (labels.connection === 'signed out') return ['This browser is no longer signed in', signInHint]
  if (labels.connection === 'offline') {
    return [
      'The server is unreachable',
      'You have labelled all comparisons that were loaded. The page keeps trying to reconnect.',
    ]
  }
  if (isThrottled) {
    return [
      'Too many requests',
      'Your open pages have sent too many requests. The next comparison appears here in a few seconds.',
    ]
  }
  if (summary?.phase === 'finished') return ['The run is finished', describeStatus(summary)]
  return [
    'Nothing to label right now',
    isHeldByOthers
      ? 'Other labelers have the remaining comparisons, or you have already labelled them. The next free one appears here automatically.'
      : summary === null ? '' : IDLE_TEXTS[summary.phase] || summary.message,
  ]
}

/** Return why no episode is shown. */
export function describeNoEpisode(
  summary: Pick<ExperimentSummary, 'latest_episode' | 'is_running'> | null,
  failure: unknown,
): string {
  if (failure !== null) return errorText(failure)
  if (summary === null || summary.latest_episode !== null) return 'Loading…'
  return summary.is_running ? 'The first episode appears here after it ends.' : 'This run has no episode to show.'
}

/** Return whether a run has started training for the first time between two summaries. */
export const hasStartedTraining = (
  before: Pick<Status, 'phase' | 'step'> | null,
  now: Pick<Status, 'phase'>,
): boolean => before?.step === 0 && before.phase !== 'training' && now.phase === 'training'

/** Return a warning without its numbers, which change with every label. */
export const warningKind = (text: string): string => text.replace(/\d+/g, '')

function describeTraining({ step, num_steps, steps_per_second, progress }: Status, steps: string): string {
  const left_s = steps_per_second ? (num_steps - step) / steps_per_second : 0
  const timeLeft = left_s > 0 ? `, about ${duration(left_s)} left` : ''
  const waiting = progress.waiting > 0 ? ` ${plural(progress.waiting, 'comparison')} to label.` : ''
  return `${steps}${timeLeft}.${waiting}`
}
