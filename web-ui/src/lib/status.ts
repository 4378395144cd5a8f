/** What an experiment does, in a sentence that says more than its badge. */

import type { Summary } from './types'
import { duration, plural, short } from './format'

type Facts = Pick<Summary, 'phase' | 'message' | 'step' | 'num_steps' | 'steps_per_second' | 'progress'>

export function describeStatus(facts: Facts): string {
  const { phase, step, num_steps, progress } = facts
  switch (phase) {
    case 'training':
      return training(facts)
    case 'waiting':
      return progress.waiting > 0
        ? `The agent rests until ${plural(progress.waiting, 'more comparison is', 'more comparisons are')} answered.`
        : 'The next clips are being drawn.'
    case 'fitting':
      return `The predictor learns from ${plural(progress.answered, 'answer')}; then the agent goes on.`
    case 'random':
      return 'The agent moves at random, so that there is something to compare.'
    case 'paused':
      return `Held at ${short(step)} of ${short(num_steps)} steps until it is resumed; answers are still taken.`
    case 'finished':
      return `All ${short(num_steps)} steps are done, with ${plural(progress.answered, 'answer')}.`
    case 'stopped':
      return `Saved at ${short(step)} of ${short(num_steps)} steps. The same command goes on from there.`
    case 'starting':
      return 'The first comparisons come in some seconds.'
    default:
      return facts.message
  }
}

function training({ step, num_steps, steps_per_second, progress }: Facts): string {
  const share = `${short(step)} of ${short(num_steps)} steps`
  const left_s = steps_per_second ? (num_steps - step) / steps_per_second : null
  const pace = left_s === null || left_s <= 0 ? share : `${share}, about ${duration(left_s)} left`
  const waiting = progress.waiting > 0 ? `; ${plural(progress.waiting, 'comparison waits', 'comparisons wait')} meanwhile` : ''
  return `${pace}${waiting}.`
}
