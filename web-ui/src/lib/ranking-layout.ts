/**
 * Layout of ranked clips on an axis, best first: coordinates, lanes, zoom and pan.
 *
 * Coordinates grow with the rank. They follow the quality, but equal clips get some space, so that
 * zooming in separates them.
 */

/** What is visible: the coordinate at the left edge, and pixels per unit. */
export interface View {
  start: number
  scale: number
}

/** Size of the window on the axis, in pixels. */
export interface Window {
  width: number
  /** Room before the first and after the last clip. */
  margin: number
}

/** Zooming in stops at this multiple of the scale that shows all clips. */
export const MAX_ZOOM = 400
/** Ratio of the scales at which clips are assigned to lanes. */
const LANE_STEP = Math.SQRT2
/** Share of the axis that is divided equally among the clips. */
const EQUAL_SHARE = 0.25

/** Return the coordinate of each clip. */
export function coordinatesOf(qualities: readonly number[]): number[] {
  const best = qualities[0] ?? 0
  const range = Math.max(best - (qualities.at(-1) ?? 0), 1)
  const gap = (EQUAL_SHARE * range) / qualities.length
  return qualities.map((quality, i) => best - quality + gap * i)
}

/** Map x by the points (xs, ys), where xs ascend; beyond the ends with slope 1. */
export function interpolate(x: number, xs: readonly number[], ys: readonly number[]): number {
  const last = xs.length - 1
  if (last < 0) return x
  if (x <= xs[0]!) return ys[0]! + x - xs[0]!
  if (x >= xs[last]!) return ys[last]! + x - xs[last]!
  const high = firstAbove(xs, x)
  const [x0, x1, y0, y1] = [xs[high - 1]!, xs[high]!, ys[high - 1]!, ys[high]!]
  return y0 + ((x - x0) / (x1 - x0)) * (y1 - y0)
}

/** Return the index of the first number above a limit in an ascending list. */
function firstAbove(numbers: readonly number[], limit: number): number {
  let [low, high] = [0, numbers.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (numbers[middle]! <= limit) low = middle + 1
    else high = middle
  }
  return low
}

/** Return the view of an axis of this length that shows all clips. */
export function fitted(length: number, { width, margin }: Window): View {
  const scale = Math.max(width - 2 * margin, 1) / Math.max(length, 1e-6)
  return { start: -margin / scale, scale }
}

/**
 * Return the scale at which clips are assigned to lanes: one of a few at most as large as the view's,
 * so that zooming shows the same clips for a while instead of others at each step.
 */
export function laneScale({ scale }: View, length: number, window: Window): number {
  const least = fitted(length, window).scale
  // The tolerance keeps a view that shows all clips from being rounded down.
  const step = Math.floor(Math.log(scale / least) / Math.log(LANE_STEP) + 1e-9)
  return least * LANE_STEP ** step
}

/** Keep a view within the axis. */
export function clamped({ start, scale }: View, length: number, window: Window): View {
  const least = fitted(length, window).scale
  const kept = Math.min(Math.max(scale, least), least * MAX_ZOOM)
  const first = -window.margin / kept
  const last = Math.max(length - (window.width - window.margin) / kept, first)
  return { start: Math.min(Math.max(start, first), last), scale: kept }
}

/** Zoom around a pixel of the window, which keeps its coordinate; a factor above 1 zooms in. */
export function zoomed(view: View, factor: number, x_px: number, length: number, window: Window): View {
  const { scale } = clamped({ ...view, scale: view.scale * factor }, length, window)
  const start = view.start + x_px / view.scale - x_px / scale
  return clamped({ start, scale }, length, window)
}

/** Move the clips by pixels to the right. */
export const panned = (view: View, dx_px: number, length: number, window: Window): View =>
  clamped({ ...view, start: view.start - dx_px / view.scale }, length, window)

/** Pan as little as needed to show a coordinate with the margin around it. */
export function revealed(view: View, coordinate: number, length: number, window: Window): View {
  const x_px = (coordinate - view.start) * view.scale
  const wanted_px = Math.min(Math.max(x_px, window.margin), window.width - window.margin)
  return panned(view, wanted_px - x_px, length, window)
}

/**
 * Assign each item to the first lane with room.
 *
 * @param xs_px centres of the items, ascending.
 * @returns the lane of each item; -1 where no lane has room.
 */
export function lanesOf(xs_px: readonly number[], itemWidth_px: number, numLanes: number): number[] {
  const ends = Array.from({ length: numLanes }, () => -Infinity)
  return xs_px.map((x_px) => {
    const lane = ends.findIndex((end_px) => end_px <= x_px)
    if (lane !== -1) ends[lane] = x_px + itemWidth_px
    return lane
  })
}

/** Return the indices of the items that reach into the window: first, and one after the last. */
export function visibleRange(
  xs_px: readonly number[],
  itemWidth_px: number,
  { start, scale }: View,
  width_px: number,
): [number, number] {
  const left_px = start * scale
  return [
    firstAbove(xs_px, left_px - itemWidth_px),
    firstAbove(xs_px, left_px + width_px + itemWidth_px),
  ]
}
