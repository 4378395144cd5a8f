/** The effect of this labeler's labels on the reward predictor, as of its latest fit. */

import type * as api from './api'
import type { Clip, Comparison, ExperimentSummary, LabelEffect } from './api-types'
import { plural } from './format'
import { answerTo, type History } from './history'

export class LabelEffects {
  latest = $state.raw<LabelEffect | null>(null)
  /** The effect as of the fit before. */
  previous = $state.raw<LabelEffect | null>(null)
  #wantedFit = 0

  constructor(
    private readonly name: string,
    private readonly service: Pick<typeof api, 'getLabelEffect'>,
  ) {}

  /** Fetch the effect after each fit. Never rejects. */
  async follow({ num_fits, progress }: Pick<ExperimentSummary, 'num_fits' | 'progress'>): Promise<void> {
    if (num_fits === this.#wantedFit || progress.mine === 0) return
    this.#wantedFit = num_fits
    try {
      const effect = await this.service.getLabelEffect(this.name)
      // The answer to a later request may have arrived before.
      if (this.#wantedFit !== num_fits || !hasEffect(effect)) return
      if (effect.num_fits !== this.latest?.num_fits) this.previous = this.latest
      this.latest = effect
    } catch {
      // The next summary tries again.
      if (this.#wantedFit === num_fits) this.#wantedFit = 0
    }
  }
}

/**
 * Leave out clips that are asked about, so that no prediction biases a label, and labels that have
 * been changed since the fit.
 *
 * @param asked comparisons that are still to be labelled.
 */
export function hideAsked(
  effect: LabelEffect,
  asked: readonly Comparison[],
  history: History,
): LabelEffect {
  const hashes = new Set(asked.flatMap(({ left, right }) => [left.hash, right.hash]))
  const isFree = (clip: Clip) => !hashes.has(clip.hash)
  return {
    ...effect,
    highest: effect.highest.filter(isFree),
    lowest: effect.lowest.filter(isFree),
    disagreements: effect.disagreements.filter(
      ({ id, left, right, answer }) =>
        isFree(left) && isFree(right) && (answerTo(history, id) ?? answer) === answer,
    ),
  }
}

/** Return whether there is anything to show. */
const hasEffect = ({ num_compared, highest }: LabelEffect): boolean =>
  num_compared > 0 || highest.length > 0

/** Describe an effect and its change in one sentence. */
export function describeEffect(effect: LabelEffect, before: LabelEffect | null): string {
  const { num_labels, num_compared, num_agreed } = effect
  const fitted = `The reward predictor was fitted to ${plural(num_labels, 'label')}`
  if (num_compared === 0) return `${fitted}.`
  const latest = plural(num_compared, 'latest preference')
  return `${fitted}. It agrees with ${num_agreed} of your ${latest}${describeChange(before)}.`
}

function describeChange(before: LabelEffect | null): string {
  if (before === null || before.num_compared === 0) return ''
  return ` (before: ${before.num_agreed} of ${before.num_compared})`
}
