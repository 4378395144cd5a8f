import { describe, expect, it } from 'vitest'

import { closest, extentOf, pointsOf, smooth, thin, ticksOf, within } from '../src/lib/chart'
import { ChartView } from '../src/lib/chart-view.svelte'

const points = [0, 10, 20, 30, 40].map((step) => ({ step, value: step / 10 }))

describe('smoothing', () => {
  it('averages over the points around each one', () => {
    const points = [0, 3, 6, 3].map((value, step) => ({ step, value }))
    expect(smooth(points)).toEqual([1.5, 3, 4, 4.5].map((value, step) => ({ step, value })))
  })
})

describe('chart', () => {
  it('omits rows without the metric', () => {
    const rows = [{ step: 1, loss: 0.5 }, { step: 2, loss: null }, { step: 3 }]
    expect(pointsOf(rows, 'loss')).toEqual([{ step: 1, value: 0.5 }])
  })

  it('keeps the neighbours of the visible points so that lines reach the edges', () => {
    expect(within(points, [12, 29]).map(({ step }) => step)).toEqual([10, 20, 30])
    expect(within(points, [0, 40])).toEqual(points)
  })

  it('keeps peaks when it thins a long curve', () => {
    const long = Array.from({ length: 10_000 }, (_, step) => ({ step, value: step === 4321 ? 99 : 0 }))
    const thinned = thin(long, 100)
    expect(thinned.length).toBeLessThanOrEqual(100)
    expect(thinned).toContainEqual({ step: 4321, value: 99 })
    const steps = thinned.map(({ step }) => step)
    expect(steps).toEqual(steps.toSorted((a, b) => a - b))
  })

  it('returns round ticks within the interval', () => {
    expect(ticksOf([0, 1], 4)).toEqual([0, 0.5, 1])
    expect(ticksOf([-130, 2100], 5)).toEqual([0, 500, 1000, 1500, 2000])
    expect(ticksOf([3, 3], 4)).toEqual([])
  })

  it('widens the extent of a constant curve', () => {
    expect(extentOf([5, 5])).toEqual([4.5, 5.5])
    expect(extentOf([])).toEqual([0, 1])
  })

  it('finds the point with the closest step', () => {
    expect([-5, 14, 16, 99].map((step) => closest(points, step)?.step)).toEqual([0, 10, 20, 40])
    expect(closest([], 3)).toBeUndefined()
  })
})

describe('chart view', () => {
  it('shows all steps until it is zoomed and after a reset', () => {
    const view = new ChartView()
    view.end = 1000
    expect(view.steps).toEqual([0, 1000])
    view.show(600, 200)
    expect(view.steps).toEqual([200, 600])
    view.reset()
    expect([view.steps, view.isZoomed]).toEqual([[0, 1000], false])
  })

  it('stays within the curves and stops zooming in', () => {
    const view = new ChartView()
    view.end = 1000
    view.show(-300, 100)
    expect(view.steps).toEqual([0, 400])
    for (let i = 0; i < 30; i++) view.zoom(0.5)
    expect(view.steps[1] - view.steps[0]).toBeCloseTo(2)
    for (let i = 0; i < 30; i++) view.zoom(2)
    expect(view.isZoomed).toBe(false)
  })
})
