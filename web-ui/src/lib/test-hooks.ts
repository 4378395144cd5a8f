/** What browser tests read from the page: `window.__rlTeacher`. */

export interface TestHooks {
  /** Pictures drawn in the last second. */
  fps: number
  /** 'webgl', 'canvas', or null before the first clip. */
  renderer: 'webgl' | 'canvas' | null
  /** The comparison whose clips are on the canvas; null while nothing waits. */
  comparisonId: number | null
  /** Answers that the service has not acknowledged. */
  outboxLength: number
  /** Comparisons that are ready behind the one on screen. */
  numAhead: number
  /** From the last key press or tap until the page had drawn the next comparison. */
  draw_ms: number | null
  /** From the last key press or tap to the next comparison drawn and handed to the screen. */
  swap_ms: number | null
  isPlaying: boolean
  time_s: number
  /** Where a point of the world lies on the page, in CSS pixels. */
  locate: (side: number, point: [number, number, number]) => [number, number] | null
}

export const testHooks: TestHooks = {
  fps: 0,
  renderer: null,
  comparisonId: null,
  outboxLength: 0,
  numAhead: 0,
  draw_ms: null,
  swap_ms: null,
  isPlaying: false,
  time_s: 0,
  locate: () => null,
}

;(window as unknown as { __rlTeacher: TestHooks }).__rlTeacher = testHooks

const SECOND_MS = 1000
let drawn_ms: number[] = []

/** Counts a drawn picture. */
export function countDraw(now_ms: number): void {
  drawn_ms.push(now_ms)
  drawn_ms = drawn_ms.filter((time) => time > now_ms - SECOND_MS)
  testHooks.fps = drawn_ms.length
}
