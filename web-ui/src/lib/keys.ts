/** Keyboard shortcuts. */

import type { Answer } from './api-types'

export type Action =
  | { kind: 'answer'; answer: Answer }
  | { kind: 'undo' | 'pause' | 'restart' | 'watch' | 'help' | 'leave' | 'resetView' }
  | { kind: 'step'; direction: 1 | -1 }
  | { kind: 'speed'; index: number }
  | { kind: 'orbit'; azimuth: number; elevation: number }
  | RankingAction

/** What only a screen of several clips has. */
export type RankingAction =
  | { kind: 'place'; number: number }
  | { kind: 'tie' | 'takeBack' | 'submit' | 'leaveOut' }

/** Names of keys as the page displays them. */
export const PRINTED = {
  left: '←',
  right: '→',
  equal: '↓',
  cannot_tell: '↑',
  undo: 'Z',
  pause: 'space',
  restart: 'R',
  back: ',',
  forward: '.',
  tie: '=',
  submit: '↵',
  watch: 'W',
  help: '?',
} as const

const ORBIT_DEG = 10

const PLAIN: Record<string, Action> = {
  ArrowLeft: { kind: 'answer', answer: 'left' },
  ArrowRight: { kind: 'answer', answer: 'right' },
  ArrowDown: { kind: 'answer', answer: 'equal' },
  ArrowUp: { kind: 'answer', answer: 'cannot_tell' },
  s: { kind: 'answer', answer: 'cannot_tell' },
  z: { kind: 'undo' },
  Backspace: { kind: 'undo' },
  ' ': { kind: 'pause' },
  r: { kind: 'restart' },
  ',': { kind: 'step', direction: -1 },
  '.': { kind: 'step', direction: 1 },
  '1': { kind: 'speed', index: 0 },
  '2': { kind: 'speed', index: 1 },
  '3': { kind: 'speed', index: 2 },
  '4': { kind: 'speed', index: 3 },
  '5': { kind: 'speed', index: 4 },
  '0': { kind: 'resetView' },
  w: { kind: 'watch' },
  '?': { kind: 'help' },
  Escape: { kind: 'leave' },
}

/** While several clips are ranked, digits name clips instead of speeds. */
const RANKING: Record<string, Action> = {
  ...Object.fromEntries([1, 2, 3, 4, 5].map((number) => [String(number), { kind: 'place', number }])),
  '=': { kind: 'tie' },
  Backspace: { kind: 'takeBack' },
  Enter: { kind: 'submit' },
  ArrowUp: { kind: 'leaveOut' },
  s: { kind: 'leaveOut' },
}

const NO_PAIR = ['ArrowLeft', 'ArrowRight', 'ArrowDown']

const SHIFTED: Record<string, Action> = {
  ArrowLeft: { kind: 'orbit', azimuth: -ORBIT_DEG, elevation: 0 },
  ArrowRight: { kind: 'orbit', azimuth: ORBIT_DEG, elevation: 0 },
  ArrowUp: { kind: 'orbit', azimuth: 0, elevation: -ORBIT_DEG },
  ArrowDown: { kind: 'orbit', azimuth: 0, elevation: ORBIT_DEG },
}

export interface KeyPress {
  key: string
  repeat: boolean
  shiftKey: boolean
  ctrlKey: boolean
  altKey: boolean
  metaKey: boolean
  target: EventTarget | null
}

/** Return the action of a key press, or null if the page does not handle it. */
export function actionOf(event: KeyPress, isRanking = false): Action | null {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return null
  if (isUsedByFocusedElement(event)) return null
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key
  if (event.shiftKey && key in SHIFTED) return SHIFTED[key]!
  if (isRanking && key in RANKING) return RANKING[key]!
  return isRanking && NO_PAIR.includes(key) ? null : (PLAIN[key] ?? null)
}

/** Return whether the focused element handles the key itself. */
function isUsedByFocusedElement(event: KeyPress): boolean {
  const element = event.target as Partial<HTMLElement> | null
  if (element === null || typeof element.matches !== 'function') return false
  if (element.matches('input[type=range], [role=slider]')) return event.key.startsWith('Arrow')
  // Long instructions scroll; only then can they have the focus.
  if (element.matches('.instructions')) return ['ArrowUp', 'ArrowDown'].includes(event.key)
  if (element.matches('input, textarea, select') || element.isContentEditable) return true
  const isActivated = [' ', 'Enter'].includes(event.key) && element.matches('button, a[href], summary')
  return isActivated && element.matches(':focus-visible')
}

/** Unfocus a button that was clicked with the mouse; otherwise the space bar would press it again. */
export function releaseFocus(event: MouseEvent): void {
  // A click by keyboard has detail 0 and keeps the focus.
  if (event.detail > 0) (event.currentTarget as HTMLElement).blur()
}

/** Return false for the second click of a double click, which would label the next comparison. */
export const isFirstClick = ({ detail }: MouseEvent): boolean => detail < 2
