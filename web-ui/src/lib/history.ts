/** The last answers, so that they can be seen again, changed, or taken back. */

import type { Answer, Comparison } from './types'

export const REMEMBERED = 20

/** A comparison and what this labeler said of it last. */
export interface Answered {
  comparison: Comparison
  answer: Answer
}

/** Oldest first, one per comparison. */
export type History = readonly Answered[]

/** The history after an answer; one given before about the same comparison is replaced. */
export function remember(history: History, comparison: Comparison, answer: Answer): History {
  return [...without(history, comparison.id), { comparison, answer }].slice(-REMEMBERED)
}

/** The history after the newest answer was taken back, and that answer; null if there is none. */
export function takeBack(history: History): { history: History; taken: Answered | null } {
  return { history: history.slice(0, -1), taken: history.at(-1) ?? null }
}

export const without = (history: History, id: number): History =>
  history.filter(({ comparison }) => comparison.id !== id)

/** What this labeler said of a comparison, as far as it is remembered. */
export const answerTo = (history: History, id: number): Answer | null =>
  history.find(({ comparison }) => comparison.id === id)?.answer ?? null

/** What the service knows, and on top of it what it has not been told yet. */
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
  return history.slice(-REMEMBERED)
}
