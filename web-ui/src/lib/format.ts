/** Text for numbers, answers and errors. */

import { RequestRejected, SignedOut, Throttled } from './api'
import type { Answer } from './api-types'

const whole = new Intl.NumberFormat('en')
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })

/** Placeholder for a value that is not known. */
export const MISSING = '–'

/** Format an integer: 1,234,567. */
export const count = (value: number): string => whole.format(value)

/** Format a large number briefly: 1.2M. */
export const short = (value: number): string => compact.format(value).replace('K', 'k')

/** Format a fraction: 87 %. */
export const percent = (fraction: number): string => `${Math.round(100 * fraction)} %`

/** Format a metric that is a share, with its 95 % interval where it is known: 87 % (75 to 94). */
export function shareOf(metrics: Readonly<Record<string, unknown>>, key: string): string | null {
  const [share, low, high] = [key, `${key}_low`, `${key}_high`].map((name) => metrics[name])
  if (typeof share !== 'number') return null
  const isKnown = typeof low === 'number' && typeof high === 'number'
  return percent(share) + (isKnown ? ` (${Math.round(100 * low)} to ${Math.round(100 * high)})` : '')
}

/** Format a return or reward, if it is known, with fewer decimals for larger values. */
export function reward(value: number | null | undefined): string {
  if (value == null) return MISSING
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

/** Format a duration: 40 s, 6 min, 2 h 5 min, 3 days. */
export function duration(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 60) return `${minutes} min`
  if (minutes >= 48 * 60) return `${Math.round(minutes / 1440)} days`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** Format the local time of a moment: 14:02, or 25 Nov, 14:02 on another day. */
export function localTime(moment: string, now = new Date()): string {
  const date = new Date(moment)
  const isToday = date.toDateString() === now.toDateString()
  const day = isToday ? {} : ({ day: 'numeric', month: 'short' } as const)
  return date.toLocaleString('en-GB', { ...day, hour: '2-digit', minute: '2-digit' })
}

export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`

/** Return what labelers are asked: the instructions, if there are any. */
export const questionOf = (instructions: string): string => instructions.trim() || 'Which clip is better?'

export const capitalise = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)

export const errorText = (error: unknown): string =>
  error instanceof Error ? error.message : String(error)

/** Return why a page no longer follows the service: text that fits a narrow header. */
export function failureText(error: unknown): string {
  if (error instanceof RequestRejected) {
    return error.problem.status === 404 ? 'Experiment not found' : error.problem.title
  }
  if (error instanceof SignedOut) return 'Signed out'
  return error instanceof Throttled ? 'Too many requests' : 'Server unreachable'
}

/** The arrangement of two clips on the screen. */
export type Layout = 'beside' | 'above'

/** Return a side's name as it appears on the screen. */
export const sideName = (side: 'left' | 'right', layout: Layout): string =>
  layout === 'beside' ? side : side === 'left' ? 'top' : 'bottom'

/** Return an answer as a phrase: "left is better". */
export function answerName(answer: Answer, layout: Layout = 'beside'): string {
  if (answer === 'equal') return 'equal'
  if (answer === 'cannot_tell') return 'can’t tell'
  return `${sideName(answer, layout)} is better`
}

/** Half the width of a 95 % interval, in standard deviations. */
export const Z_95 = 1.96

/** With fewer answers than this, the interval of a clip's quality is wider than the ranking. */
const ENOUGH_ANSWERS = 3

/** Return "0.91 ± 0.30", a clip's quality in log-odds with its 95 % interval, or "0.91, rough". */
export function qualityText(clip: { quality: number; standard_deviation: number | null; num_answers: number }): string {
  const quality = reward(clip.quality)
  if (clip.num_answers < ENOUGH_ANSWERS) return `${quality}, rough`
  return clip.standard_deviation === null ? quality : `${quality} ± ${reward(Z_95 * clip.standard_deviation)}`
}
