/** What charts over the same steps share: the visible interval, the step under the pointer, and smoothing. */

import type { Interval } from './chart'

/** Zooming in stops at this share of all steps. */
const MIN_SHARE = 0.002

export class ChartView {
  /** The last step of all curves. */
  end = $state(0)
  hovered = $state<number | null>(null)
  isSmoothed = $state(false)
  #zoomed = $state.raw<Interval | null>(null)

  /** The visible interval of steps. */
  get steps(): Interval {
    return this.#zoomed ?? [0, Math.max(this.end, 1)]
  }

  get isZoomed(): boolean {
    return this.#zoomed !== null
  }

  /** Show an interval of steps, in any order; it is kept within the curves. */
  show(one: number, other: number): void {
    const width = Math.max(Math.abs(one - other), this.end * MIN_SHARE)
    const low = Math.min(Math.max(Math.min(one, other), 0), Math.max(this.end - width, 0))
    const isAll = width >= this.end
    this.#zoomed = isAll ? null : [low, low + width]
  }

  /** Zoom around the middle of the visible interval; a factor below 1 zooms in. */
  zoom(factor: number): void {
    const [low, high] = this.steps
    const middle = (low + high) / 2
    const half = ((high - low) / 2) * factor
    this.show(middle - half, middle + half)
  }

  reset(): void {
    this.#zoomed = null
  }
}
