/** Labelling progress: counts of the service plus labels that it has not acknowledged yet. */

import type { ExperimentSummary, Progress } from './api-types'
import { count, plural } from './format'

const LONGEST_BREAK_MS = 60_000
const NUM_RECENT = 15
const MIN_INTERVALS = 3

export class LabellingProgress {
  /** Labels per minute of this labeler; null until there are enough labels. */
  perMinute = $state.raw<number | null>(null)
  /** Change of the number of labelled comparisons by labels that are still unsent. */
  unsentChange = $state(0)
  #acknowledged = $state.raw<Progress | null>(null)
  /** The part of `unsentChange` that is in the service's counts: it counts a label before it acknowledges it. */
  #counted = $state(0)
  #times_ms: number[] = []
  /** Labels with which the run continues, if it waits for some. */
  #continuesAt = $state<number | null>(null)

  /** Counts including unsent labels, or null before the service has answered. */
  get counts(): Progress | null {
    if (this.#acknowledged === null) return null
    const { mine, answered, waiting } = this.#acknowledged
    const change = this.unsentChange - this.#counted
    return {
      ...this.#acknowledged,
      mine: Math.max(0, mine + change),
      answered: Math.max(0, answered + change),
      waiting: Math.max(0, waiting - change),
    }
  }

  get numWaiting(): number {
    return this.counts?.waiting ?? 0
  }

  /** Labels that the run waits for, unsent ones subtracted. */
  get numMissing(): number {
    return this.#continuesAt === null ? 0 : Math.max(0, this.#continuesAt - (this.counts?.answered ?? 0))
  }

  /** Follow the status of the run and the counts of the service. */
  follow({ num_missing, progress }: Pick<ExperimentSummary, 'num_missing' | 'progress'>): void {
    this.update(progress)
    // The status may be older than the number of labels sent with it.
    const continuesAt = Math.min(this.#continuesAt ?? Infinity, num_missing + progress.answered)
    this.#continuesAt = num_missing > 0 ? continuesAt : null
  }

  /** Replace the counts by newer ones of the service. */
  update(progress: Progress): void {
    const change = this.unsentChange
    const uncounted = (this.counts?.mine ?? progress.mine + change) - progress.mine
    this.#counted = change - Math.max(Math.min(0, change), Math.min(Math.max(0, change), uncounted))
    this.#acknowledged = progress
  }

  /** Count labels that the service has just acknowledged, until it sends new counts. */
  acknowledge(change: number): void {
    if (this.#acknowledged === null) return
    const { mine, answered, waiting } = this.#acknowledged
    this.#acknowledged = {
      ...this.#acknowledged,
      mine: mine + change,
      answered: answered + change,
      waiting: waiting - change,
    }
  }

  /** Record the time of a label for the pace. */
  recordLabel(now_ms: number): void {
    this.#times_ms.push(now_ms)
    this.perMinute = labelsPerMinute(this.#times_ms)
  }
}

/**
 * Compute a labeler's pace; breaks do not count.
 *
 * @param times_ms of the labels, oldest first.
 * @returns labels per minute, or null for too few labels.
 */
export function labelsPerMinute(times_ms: readonly number[]): number | null {
  const recent = times_ms.slice(-NUM_RECENT)
  const intervals_ms = recent
    .slice(1)
    .map((time, i) => time - recent[i]!)
    .filter((interval) => interval > 0 && interval < LONGEST_BREAK_MS)
  if (intervals_ms.length < MIN_INTERVALS) return null
  return (60_000 * intervals_ms.length) / intervals_ms.reduce((sum, interval) => sum + interval, 0)
}

/** Return " of 100", or nothing for a run that asks until it is finished. */
export const ofTarget = ({ target }: Progress): string => (target === null ? '' : ` of ${count(target)}`)

/** Return the number of clips beside that of labels, "40 of 100 clips"; empty unless clips are sorted. */
export function clipsText({ clips }: Progress): string {
  if (clips === null) return ''
  const { compared, target } = clips
  return target === null ? plural(compared, 'clip') : `${count(compared)} of ${plural(target, 'clip')}`
}

/** Return the seconds until the goal at the given pace, or null if unknown or reached. */
export function secondsLeft(progress: Progress, perMinute: number | null): number | null {
  const left = (progress.target ?? 0) - progress.answered
  return perMinute === null || left <= 0 ? null : (60 * left) / perMinute
}

/**
 * Estimate when the next comparison comes: the comparisons that are still to be asked are spread
 * over the remaining steps of training.
 *
 * @param lastAskedStep at which the latest comparison was asked.
 * @returns seconds, or null unless the run is training for a known number of steps and will ask more.
 */
export function secondsToNext(
  { phase, step, num_steps, steps_per_second, progress }: ExperimentSummary,
  lastAskedStep: number,
): number | null {
  const numMissing = (progress.target ?? 0) - progress.asked
  if (phase !== 'training' || !steps_per_second || num_steps === 0 || numMissing <= 0) return null
  const nextStep = lastAskedStep + (num_steps - lastAskedStep) / numMissing
  return Math.max(1, (nextStep - step) / steps_per_second)
}
