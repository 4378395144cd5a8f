/** The most recent labels, which can be shown again, changed or withdrawn. */

import type { Answer, Comparison } from './api-types'

export const MAX_HISTORY = 20

/** A comparison and this labeler's current answer. */
export interface Answered {
  comparison: Comparison
  answer: Answer
}

/** Labels, oldest first, one per comparison. */
export type History = readonly Answered[]

/** Return the history with an answer added; it replaces an earlier one of the same comparison. */
export function remember(history: History, comparison: Comparison, answer: Answer): History {
  return [...without(history, comparison.id), { comparison, answer }].slice(-MAX_HISTORY)
}

/** Return the history without its newest label, and that label or null. */
export function takeBack(history: History): { history: History; taken: Answered | null } {
  return { history: history.slice(0, -1), taken: history.at(-1) ?? null }
}

export const without = (history: History, id: number): History =>
  history.filter(({ comparison }) => comparison.id !== id)

/** Return this labeler's answer to a comparison, or null if it is not in the history. */
export const answerTo = (history: History, id: number): Answer | null =>
  history.find(({ comparison }) => comparison.id === id)?.answer ?? null

/** Build the history from the service's labels and the unsent ones. */
export function restore(
  known: readonly Comparison[],
  unsent: readonly { comparison: Comparison; label: { answer: Answer | null } }[],
): History {
  let history: History = known.flatMap((comparison) =>
    comparison.answer === null ? [] : [{ comparison, answer: comparison.answer }],
  )
  for (const { comparison, label } of unsent) {
    history =
      label.answer === null
        ? without(history, comparison.id)
        : remember(history, comparison, label.answer)
  }
  return history.slice(-MAX_HISTORY)
}
