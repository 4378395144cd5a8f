/** Mouse and touch gestures on a clip: drag turns the camera, wheel and pinch zoom, a tap selects. */

import type { Playback } from './playback.svelte'

const MAX_TAP_PX = 8
const MAX_TAP_MS = 450
const AZIMUTH_DEG_PER_PX = -0.4
const ELEVATION_DEG_PER_PX = -0.3

interface Point {
  x: number
  y: number
}

export class PointerGestures {
  #pointers = new Map<number, Point>()
  #travelled_px = 0
  #pressed_ms = 0

  constructor(private readonly playback: Playback) {}

  press(event: PointerEvent): void {
    if ((event.target as Element).closest('button, a') !== null) return
    ;(event.currentTarget as Element).setPointerCapture(event.pointerId)
    if (this.#pointers.size === 0) {
      this.#travelled_px = 0
      this.#pressed_ms = event.timeStamp
    } else {
      // A second finger: this is a pinch, not a tap.
      this.#travelled_px = Infinity
    }
    this.#pointers.set(event.pointerId, { x: event.clientX, y: event.clientY })
  }

  move(event: PointerEvent): void {
    const before = this.#pointers.get(event.pointerId)
    if (before === undefined) return
    const now = { x: event.clientX, y: event.clientY }
    const [dx, dy] = [now.x - before.x, now.y - before.y]
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1]
    if (other !== undefined) {
      this.playback.magnify(distance(before, other) / distance(now, other))
    } else {
      this.#travelled_px += Math.hypot(dx, dy)
      const isDrag = this.#travelled_px > MAX_TAP_PX || event.pointerType === 'mouse'
      if (isDrag) this.playback.turn(AZIMUTH_DEG_PER_PX * dx, ELEVATION_DEG_PER_PX * dy)
    }
    this.#pointers.set(event.pointerId, now)
  }

  /** Finish a gesture; return whether it was a tap with a finger or a pen. */
  release(event: PointerEvent): boolean {
    if (!this.#pointers.delete(event.pointerId)) return false
    const isShort =
      this.#travelled_px < MAX_TAP_PX && event.timeStamp - this.#pressed_ms < MAX_TAP_MS
    return isShort && event.type === 'pointerup' && event.pointerType !== 'mouse'
  }

  zoom(event: WheelEvent): void {
    event.preventDefault()
    // Trackpads report a pinch as small wheel steps with Ctrl.
    this.playback.magnify(Math.exp(event.deltaY * (event.ctrlKey ? 0.01 : 0.0012)))
  }
}

const distance = (a: Point, b: Point): number => Math.max(Math.hypot(a.x - b.x, a.y - b.y), 1)

/** Return event handlers that report whether the pointer or the focus is on an element. */
export const whileActive = (report: (isActive: boolean) => void) => ({
  onpointerenter: () => report(true),
  onpointerleave: () => report(false),
  onfocus: () => report(true),
  onblur: () => report(false),
})
