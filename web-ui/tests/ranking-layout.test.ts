import { describe, expect, it } from 'vitest'

import {
  clamped, coordinatesOf, fitted, interpolate, laneScale, lanesOf, MAX_ZOOM, panned, revealed, visibleRange, zoomed,
} from '../src/lib/ranking-layout'

const window = { width: 1000, margin: 50 }
const LENGTH = 9

describe('coordinates', () => {
  it('ascend with the rank, also of equal clips', () => {
    const coordinates = coordinatesOf([2, 1, 1, 1, -2])
    expect(coordinates[0]).toBe(0)
    for (let i = 1; i < 5; i++) expect(coordinates[i]!).toBeGreaterThan(coordinates[i - 1]!)
    // Three quarters of differences in quality, one quarter of gaps of equal width.
    expect(coordinates[1]! - coordinates[0]!).toBeCloseTo(1 + 0.2)
    expect(coordinates[2]! - coordinates[1]!).toBeCloseTo(0.2)
  })

  it('exist for none and for one clip', () => {
    expect(coordinatesOf([])).toEqual([])
    expect(coordinatesOf([3])).toEqual([0])
  })

  it('are interpolated within the clips and continued beyond them', () => {
    expect([-1, 0, 0.5, 3, 5, 6].map((x) => interpolate(x, [0, 1, 5], [10, 20, 40]))).toEqual([9, 10, 15, 30, 40, 41])
    expect(interpolate(7, [], [])).toBe(7)
    expect(interpolate(1, [0, 1, 1, 2], [0, 1, 2, 3])).toBe(2)
  })
})

describe('view', () => {
  const all = fitted(LENGTH, window)

  it('has few scales at which lanes are assigned, none larger than its own', () => {
    expect(laneScale(all, LENGTH, window)).toBeCloseTo(all.scale)
    const scales = Array.from({ length: 41 }, (_, i) => all.scale * (1 + i / 40))
    const assigned = scales.map((scale) => laneScale({ start: 0, scale }, LENGTH, window))
    expect(new Set(assigned.map((scale) => scale.toFixed(3))).size).toBe(3)
    assigned.forEach((scale, i) => expect(scale).toBeLessThanOrEqual(scales[i]! + 1e-6))
  })

  it('shows all clips within the margins', () => {
    expect(all.scale).toBeCloseTo(100)
    expect((0 - all.start) * all.scale).toBeCloseTo(50)
    expect((LENGTH - all.start) * all.scale).toBeCloseTo(950)
  })

  it('keeps the coordinate under the pointer when zoomed', () => {
    const view = zoomed(all, 4, 300, LENGTH, window)
    expect(view.scale).toBeCloseTo(400)
    expect(view.start + 300 / view.scale).toBeCloseTo(all.start + 300 / all.scale)
  })

  it('never zooms out beyond all clips or in beyond the limit', () => {
    expect(zoomed(all, 0.01, 300, LENGTH, window)).toEqual(all)
    expect(zoomed(all, 1e9, 300, LENGTH, window).scale).toBeCloseTo(100 * MAX_ZOOM)
  })

  it('stays within the axis when panned', () => {
    const view = zoomed(all, 4, 500, LENGTH, window)
    expect(panned(view, 40, LENGTH, window).start).toBeCloseTo(view.start - 0.1)
    expect(panned(view, 1e6, LENGTH, window).start).toBeCloseTo(-50 / 400)
    expect(panned(view, -1e6, LENGTH, window).start).toBeCloseTo(LENGTH - 950 / 400)
    expect(clamped(view, LENGTH, window)).toEqual(view)
  })

  it('reveals a clip with the least movement', () => {
    const view = zoomed(all, 4, 500, LENGTH, window)
    expect(revealed(view, 4.5, LENGTH, window)).toEqual(view)
    const moved = revealed(view, 8, LENGTH, window)
    expect((8 - moved.start) * moved.scale).toBeCloseTo(950)
  })
})

describe('lanes', () => {
  it('are filled from the first one and leave out items without room', () => {
    expect(lanesOf([0, 10, 20, 100, 105], 100, 2)).toEqual([0, 1, -1, 0, -1])
    expect(lanesOf([0, 10, 110], 100, 2)).toEqual([0, 1, 0])
  })
})

describe('visible range', () => {
  it('contains the items that reach into the window', () => {
    const xs = [0, 100, 200, 300, 400, 1500]
    expect(visibleRange(xs, 90, { start: 2, scale: 100 }, 150)).toEqual([2, 5])
    expect(visibleRange([], 90, { start: 0, scale: 1 }, 150)).toEqual([0, 0])
  })
})
