/** Drags, pinches, taps and wheel zoom on an element, by mouse, pen and touch. */

/** Shorter movements belong to a click or a tap. */
const MIN_DRAG_PX = { mouse: 5, touch: 8 }
const MAX_TAP_MS = 450
const MIN_PINCH_PX = 10
const ZOOM_PER_PX = 0.0015
/** Trackpads report a pinch as small wheel steps with Ctrl. */
const PINCH_PER_PX = 0.01

export interface Drag {
  /** Movement since the last event, and since the press. */
  dx: number
  dy: number
  fromX: number
  fromY: number
  event: PointerEvent
}

export interface GestureHandlers {
  /** Return false to leave a press to the element below. */
  press?: (event: PointerEvent) => boolean | void
  drag?: (drag: Drag) => void
  /** Called at the end of each press: after a drag, or a click or tap. */
  release?: (event: PointerEvent, wasDragged: boolean) => void
  /** A short tap with a finger or a pen. */
  tap?: (event: PointerEvent) => void
  /** Two fingers moved apart (a factor above 1) around `x`, and by `dx`. */
  pinch?: (factor: number, x: number, dx: number) => void
  /** The wheel was turned; a factor above 1 zooms in. */
  zoom?: (factor: number, event: WheelEvent) => void
}

/** Return an attachment that reports the gestures on an element. */
export const gestures = (handlers: GestureHandlers) => (element: HTMLElement | SVGElement) => {
  const pointers = new Map<number, { x: number; y: number }>()
  let start = { x: 0, y: 0, at_ms: 0 }
  let isDrag = false
  const removed = new AbortController()
  const { signal } = removed
  /** Listen to the window where the pointer may have left the element. */
  const on = <Type extends keyof HTMLElementEventMap>(
    target: EventTarget,
    type: Type,
    handle: (event: HTMLElementEventMap[Type]) => void,
  ) =>
    target.addEventListener(type, handle as EventListener, { signal, passive: false, capture: type === 'click' })

  on(element, 'pointerdown', (event) => {
    if (event.button !== 0 || handlers.press?.(event) === false) return
    const at = { x: event.clientX, y: event.clientY }
    if (pointers.size === 0) {
      start = { ...at, at_ms: event.timeStamp }
      isDrag = false
    }
    pointers.set(event.pointerId, at)
  })

  on(window, 'pointermove', (event) => {
    const before = pointers.get(event.pointerId)
    if (before === undefined) return
    const now = { x: event.clientX, y: event.clientY }
    const least_px = MIN_DRAG_PX[event.pointerType === 'mouse' ? 'mouse' : 'touch']
    isDrag ||= pointers.size > 1 || Math.hypot(now.x - start.x, now.y - start.y) > least_px
    if (!isDrag) return
    // Beyond the window, too; captured no earlier, so that a click still reaches what is inside.
    element.setPointerCapture(event.pointerId)
    pointers.set(event.pointerId, now)
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1]
    if (other !== undefined) {
      handlers.pinch?.(distance(now, other) / distance(before, other), (before.x + other.x) / 2, (now.x - before.x) / 2)
    } else {
      handlers.drag?.({ dx: now.x - before.x, dy: now.y - before.y, fromX: start.x, fromY: start.y, event })
    }
  })

  const release = (event: PointerEvent) => {
    if (!pointers.delete(event.pointerId)) return
    const isShort = !isDrag && event.timeStamp - start.at_ms < MAX_TAP_MS
    if (isShort && event.type === 'pointerup' && event.pointerType !== 'mouse') handlers.tap?.(event)
    handlers.release?.(event, isDrag)
  }
  on(window, 'pointerup', release)
  on(window, 'pointercancel', release)

  // A click by keyboard has detail 0.
  on(element, 'click', (event) => isDrag && event.detail > 0 && event.stopPropagation())

  if (handlers.zoom !== undefined) {
    on(element, 'wheel', (event) => {
      event.preventDefault()
      handlers.zoom!(Math.exp(-event.deltaY * (event.ctrlKey ? PINCH_PER_PX : ZOOM_PER_PX)), event)
    })
  }
  return () => removed.abort()
}

const distance = (one: { x: number; y: number }, other: { x: number; y: number }): number =>
  Math.max(Math.hypot(one.x - other.x, one.y - other.y), MIN_PINCH_PX)

/** Return event handlers that report whether the pointer or the focus is on an element. */
export const whileActive = (report: (isActive: boolean) => void) => ({
  onpointerenter: () => report(true),
  onpointerleave: () => report(false),
  onfocus: () => report(true),
  onblur: () => report(false),
})
