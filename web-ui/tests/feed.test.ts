import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import type { ExperimentSummary } from '../src/lib/api-types'
import { Feed } from '../src/lib/feed.svelte'
import { FakeSource, sendSummary, setHidden, stubBrowser } from './fakes'

const summary = (step: number) => ({ name: 'hop', step }) as ExperimentSummary

beforeEach(() => {
  stubBrowser()
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

function follow(request: () => Promise<ExperimentSummary>) {
  const steps: number[] = []
  const show = ({ step }: ExperimentSummary) => steps.push(step)
  const feed = new Feed<ExperimentSummary>({ name: 'hop', request, received: show, updated: show })
  return { feed, steps, stop: feed.start() }
}

describe('a feed', () => {
  it('polls until its stream is open, and again when it is lost', async () => {
    const request = vi.fn(() => Promise.resolve(summary(1)))
    const { stop } = follow(request)
    await vi.advanceTimersByTimeAsync(9_000)
    expect(request).toHaveBeenCalledTimes(3)
    FakeSource.all[0]!.onopen()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(request).toHaveBeenCalledTimes(4)
    for (let attempt = 0; attempt < 4; attempt++) {
      FakeSource.all[0]!.onerror()
      await vi.advanceTimersByTimeAsync(2_250)
    }
    expect(request).toHaveBeenCalledTimes(6)
    stop()
    expect([FakeSource.open, vi.getTimerCount()]).toEqual([[], 0])
  })

  it('shows the summary of an event during a request after its response', async () => {
    let respond: (response: ExperimentSummary) => void = () => undefined
    const { steps, stop } = follow(() => new Promise((resolve) => (respond = resolve)))
    sendSummary(summary(3))
    respond(summary(2))
    await vi.advanceTimersByTimeAsync(0)
    expect(steps).toEqual([3, 2, 3])
    stop()
  })

  it('has no stream while the page is hidden', () => {
    const { stop } = follow(() => Promise.resolve(summary(1)))
    expect(FakeSource.open).toHaveLength(1)
    setHidden(true)
    expect(FakeSource.open).toEqual([])
    setHidden(false)
    expect(FakeSource.open).toHaveLength(1)
    stop()
    setHidden(false)
    expect(FakeSource.open).toEqual([])
  })

  it('opens a stream that the service has rejected again when it answers', async () => {
    const { stop } = follow(() => Promise.resolve(summary(1)))
    await vi.advanceTimersByTimeAsync(0)
    FakeSource.all[0]!.close()
    FakeSource.all[0]!.onerror()
    await vi.advanceTimersByTimeAsync(5_000)
    expect(FakeSource.open).toHaveLength(1)
    stop()
  })
})
