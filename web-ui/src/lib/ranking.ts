/** Orderings of several clips on one screen, with ties. */

import type { LoadedClip, LoadedComparison } from './clips'
import { readChoice, storeChoice } from './storage'

/** Numbers of clips on one screen; 2 is an ordinary comparison. */
export const SCREEN_SIZES = [2, 3, 4, 5] as const
export type ScreenSize = (typeof SCREEN_SIZES)[number]

/** Clips by content hash, from best to worst; those of one group are equally good. */
export type Groups = readonly (readonly string[])[]

/** Clips that are ranked together. */
export interface RankingScreen {
  key: string
  clips: readonly LoadedClip[]
  /** Leased comparisons of these clips. */
  comparisons: readonly LoadedComparison[]
}

/** A place in an ordering: a group of its own before the n-th group, or in that group. */
export interface Place {
  index: number
  isTie: boolean
}

/** Return the distinct clips of comparisons, in their order. */
export function clipsOf(comparisons: readonly LoadedComparison[]): LoadedClip[] {
  const clips = comparisons.flatMap(({ left, right }) => [left, right])
  return [...new Map(clips.map((clip) => [clip.clip.hash, clip])).values()]
}

/**
 * Return the screen of the first comparisons of a queue, with at most `size` clips. Comparisons whose
 * clips are on the screen anyway belong to it as well.
 */
export function screenOf(queue: readonly LoadedComparison[], size: number): RankingScreen {
  let num = 1
  while (num < queue.length && clipsOf(queue.slice(0, num)).length < size) num++
  const clips = clipsOf(queue.slice(0, num)).slice(0, size)
  const hashes = new Set(clips.map(({ clip }) => clip.hash))
  const isShown = ({ left, right }: LoadedComparison) =>
    hashes.has(left.clip.hash) && hashes.has(right.clip.hash)
  const comparisons = queue.filter((one, index) => index < num || isShown(one))
  return { key: comparisons.map(({ comparison }) => comparison.id).join(' '), clips, comparisons }
}

export const isRanked = (groups: Groups, clip: string): boolean => groups.flat().includes(clip)

/** Add a clip as the worst so far, or with the worst so far. */
export function append(groups: Groups, clip: string, isTie: boolean): Groups {
  const last = groups.at(-1)
  return isTie && last !== undefined ? [...groups.slice(0, -1), [...last, clip]] : [...groups, [clip]]
}

/** Remove the clip that was added last. */
export function takeBack(groups: Groups): Groups {
  const last = groups.at(-1)?.at(-1)
  return last === undefined ? groups : remove(groups, last)
}

export function remove(groups: Groups, clip: string): Groups {
  return groups.map((group) => group.filter((one) => one !== clip)).filter((group) => group.length > 0)
}

/** Move a clip to a place of the ordering as it is before the move. */
export function move(groups: Groups, clip: string, { index, isTie }: Place): Groups {
  const target = groups[index]
  if (isTie && target?.includes(clip)) return groups
  const placed = groups.flatMap((group, at): (readonly string[])[] => {
    const rest = group.filter((one) => one !== clip)
    if (at !== index) return [rest]
    return isTie ? [[...rest, clip]] : [[clip], rest]
  })
  if (index >= groups.length) placed.push([clip])
  return placed.filter((group) => group.length > 0)
}

/** Move a clip half a place: out of a tie, or into a tie with the neighbouring group. */
export function shift(groups: Groups, clip: string, direction: 1 | -1): Groups {
  const at = groups.findIndex((group) => group.includes(clip))
  if (at < 0) return groups
  if (groups[at]!.length > 1) {
    return move(groups, clip, { index: direction < 0 ? at : at + 1, isTie: false })
  }
  const next = at + direction
  return next < 0 || next >= groups.length ? groups : move(groups, clip, { index: next, isTie: true })
}

/** Describe an ordering in words: "3, then 1 and 4, then 2". */
export const describe = (groups: Groups, numberOf: (clip: string) => number): string =>
  groups.map((group) => group.map(numberOf).join(' and ')).join(', then ')

const KEY = 'clips-on-screen'

/** Return the number of clips on one screen that was chosen in this browser. */
export const readScreenSize = (): ScreenSize => readChoice(KEY, SCREEN_SIZES)

export const storeScreenSize = (size: ScreenSize): void => storeChoice(KEY, size)
