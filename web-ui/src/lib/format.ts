/** How figures are put into words. */

import type { Answer, Progress } from './types'

const whole = new Intl.NumberFormat('en')
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })

export const MISSING = '–'

/** 1,234,567. */
export const count = (value: number): string => whole.format(value)

/** 1.2M. */
export const short = (value: number): string => compact.format(value).replace('K', 'k')

/** 87 %. */
export const percent = (share: number): string => `${Math.round(100 * share)} %`

/** A return: fewer digits the larger it is. */
export function reward(value: number): string {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

/** 40 s, 6 min, 2 h 5 min, 3 days. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 60) return `${minutes} min`
  if (minutes >= 48 * 60) return `${Math.round(minutes / 1440)} days`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`

const LONGEST_PAUSE_MS = 60_000
const RECENT = 15

/**
 * How fast a person answers; pauses do not count.
 *
 * @param times_ms when the answers came, oldest first.
 * @returns labels a minute, or null while there are too few to say.
 */
export function labelsPerMinute(times_ms: readonly number[]): number | null {
  const recent = times_ms.slice(-RECENT)
  const gaps = recent.slice(1).map((time, i) => time - recent[i]!)
  const worked = gaps.filter((gap) => gap > 0 && gap < LONGEST_PAUSE_MS)
  if (worked.length < 3) return null
  return (60_000 * worked.length) / worked.reduce((sum, gap) => sum + gap, 0)
}

/** How many answers are wanted: the target, or else all that was asked. */
export const goalOf = (progress: Progress): number => progress.target ?? progress.asked

/** Seconds until the goal at this pace, or null. */
export function secondsLeft(progress: Progress, perMinute: number | null): number | null {
  const left = goalOf(progress) - progress.answered
  return perMinute === null || left <= 0 ? null : (60 * left) / perMinute
}

export type Layout = 'beside' | 'above'

/** A side by its place on the screen. */
export const sideName = (side: 'left' | 'right', layout: Layout): string =>
  layout === 'beside' ? side : side === 'left' ? 'top' : 'bottom'

/** An answer as a sentence's end: left is better. */
export function answerName(answer: Answer, layout: Layout = 'beside'): string {
  if (answer === 'equal') return 'equal'
  if (answer === 'cannot_tell') return 'can’t tell'
  return `${sideName(answer, layout)} is better`
}
