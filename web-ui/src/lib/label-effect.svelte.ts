/** The effect of this labeler's labels on the reward predictor, as of its latest fit. */

import type * as api from './api'
import type { Clip, Comparison, ExperimentSummary, LabelEffect } from './api-types'
import { plural } from './format'
import { answerTo, type History } from './history'
import { Resource } from './resource.svelte'

export class LabelEffects {
  latest = $state.raw<LabelEffect | null>(null)
  /** The effect as of the fit before. */
  previous = $state.raw<LabelEffect | null>(null)
  #wantedFit = 0
  readonly #resource: Resource<LabelEffect>

  constructor(name: string, service: Pick<typeof api, 'getLabelEffect'>) {
    this.#resource = new Resource(() => service.getLabelEffect(name), {
      received: (effect) => this.#receive(effect),
    })
  }

  /** Fetch the effect after each fit. Never rejects. */
  async follow({ num_fits, progress }: Pick<ExperimentSummary, 'num_fits' | 'progress'>): Promise<void> {
    if (num_fits === this.#wantedFit || progress.mine === 0) return
    this.#wantedFit = num_fits
    await this.#resource.read()
  }

  stop(): void {
    this.#resource.stop()
  }

  #receive(effect: LabelEffect): void {
    if (effect.num_compared === 0 && effect.highest.length === 0) return
    if (effect.num_fits !== this.latest?.num_fits) this.previous = this.latest
    this.latest = effect
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
