/** Scales and paths of line charts. */

/** A value at a step. */
export interface ChartPoint {
  step: number
  value: number
}

export type Interval = readonly [low: number, high: number]

/** Share of all points over which a smoothed curve averages. */
const SMOOTHING = 0.05

/** Return the mean over the points around each one. */
export function smooth(points: readonly ChartPoint[]): ChartPoint[] {
  const half = Math.ceil((points.length * SMOOTHING) / 2)
  return points.map(({ step }, i) => {
    const near = points.slice(Math.max(i - half, 0), i + half + 1)
    return { step, value: near.reduce((sum, one) => sum + one.value, 0) / near.length }
  })
}

/** A path with more points than this is thinned; screens do not show more. */
const MAX_POINTS = 1200

/** Return the values of a metric, without the rows that lack it. */
export function pointsOf(rows: readonly { step: number; [key: string]: unknown }[], metric: string): ChartPoint[] {
  return rows.flatMap((row) => {
    const value = row[metric]
    return typeof value === 'number' ? [{ step: row.step, value }] : []
  })
}

/** Return the points within an interval of steps and their neighbours, which the lines lead to. */
export function within(points: readonly ChartPoint[], [low, high]: Interval): readonly ChartPoint[] {
  const first = points.findIndex(({ step }) => step >= low)
  const last = points.findLastIndex(({ step }) => step <= high)
  if (first === -1 || last === -1) return points.slice(-1)
  return points.slice(Math.max(first - 1, 0), last + 2)
}

/** Reduce a long curve to the lowest and the highest point of each stretch, so that peaks remain. */
export function thin(points: readonly ChartPoint[], max = MAX_POINTS): readonly ChartPoint[] {
  if (points.length <= max) return points
  const size = Math.ceil((2 * points.length) / max)
  const thinned: ChartPoint[] = []
  for (let i = 0; i < points.length; i += size) {
    const stretch = points.slice(i, i + size)
    const low = stretch.reduce((best, one) => (one.value < best.value ? one : best))
    const high = stretch.reduce((best, one) => (one.value > best.value ? one : best))
    thinned.push(...(low === high ? [low] : low.step < high.step ? [low, high] : [high, low]))
  }
  return thinned
}

/** Return the interval that contains all values, widened a little; [0, 1] without values. */
export function extentOf(values: readonly number[]): Interval {
  if (values.length === 0) return [0, 1]
  const low = values.reduce((a, b) => Math.min(a, b))
  const high = values.reduce((a, b) => Math.max(a, b))
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1
  return [low - margin, high + margin]
}

/** Return round values within an interval, at most `most` of them. */
export function ticksOf([low, high]: Interval, most: number): number[] {
  const rough = (high - low) / Math.max(most, 1)
  if (!(rough > 0)) return []
  const power = 10 ** Math.floor(Math.log10(rough))
  const interval = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10)
  const first = Math.ceil(low / interval)
  const last = Math.floor(high / interval + 1e-9)
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * interval)
}

/** Return the point whose step is closest. */
export function closest(points: readonly ChartPoint[], step: number): ChartPoint | undefined {
  let [low, high] = [0, points.length - 1]
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (points[middle]!.step < step) low = middle
    else high = middle
  }
  const [left, right] = [points[low], points[high]]
  if (left === undefined || right === undefined) return left ?? right
  return step - left.step < right.step - step ? left : right
}
