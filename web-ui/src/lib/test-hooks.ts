/** State exposed to browser tests as `window.__rlTeacher`. */

export interface TestHooks {
  /** Frames drawn in the last second. */
  fps: number
  /** The renderer in use, or null before the first clip. */
  renderer: 'webgl' | 'canvas' | null
  /** The comparison whose clips are drawn; null while there is none. */
  comparisonId: number | null
  /** Labels that the service has not acknowledged. */
  outboxLength: number
  /** Comparisons that are ready behind the one on screen. */
  numAhead: number
  /** Time from the last answer until the next comparison was drawn. */
  draw_ms: number | null
  /** Time from the last answer until the next comparison was presented on the screen. */
  swap_ms: number | null
  isPlaying: boolean
  time_s: number
  /** Return where a point of the world appears on the page, in CSS pixels. */
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

/** Count a drawn frame. */
export function countFrame(now_ms: number): void {
  drawn_ms.push(now_ms)
  drawn_ms = drawn_ms.filter((time) => time > now_ms - SECOND_MS)
  testHooks.fps = drawn_ms.length
}
