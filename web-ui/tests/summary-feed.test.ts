import { describe, expect, it, vi } from 'vitest'

import type { ExperimentSummary } from '../src/lib/api-types'
import { SummaryReads } from '../src/lib/summary-feed.svelte'

const summary = (name: string, step: number) => ({ name, step }) as ExperimentSummary

describe('summary reads', () => {
  it('return the summaries of events during the request', async () => {
    const reads = new SummaryReads()
    reads.record(summary('hop', 1))
    const reading = reads.read(() => Promise.resolve('listed'))
    reads.record(summary('hop', 2))
    const latest = await reading
    expect(latest?.response).toBe('listed')
    expect(latest?.newer.get('hop')?.step).toBe(2)
    expect((await reads.read(() => Promise.resolve('again')))?.newer.size).toBe(0)
  })

  it('drop the response to an earlier request that is answered after a later one', async () => {
    const reads = new SummaryReads()
    let answer = (_: string): void => undefined
    const earlier = reads.read(() => new Promise<string>((resolve) => (answer = resolve)))
    expect((await reads.read(() => Promise.resolve('later')))?.response).toBe('later')
    answer('earlier')
    expect(await earlier).toBeNull()
  })

  it('return the response to an earlier request while a later one waits', async () => {
    const reads = new SummaryReads()
    const earlier = reads.read(() => Promise.resolve('earlier'))
    let answer = (_: string): void => undefined
    const later = reads.read(() => new Promise<string>((resolve) => (answer = resolve)))
    reads.record(summary('hop', 2))
    expect((await earlier)?.response).toBe('earlier')
    answer('later')
    expect((await later)?.newer.get('hop')?.step).toBe(2)
  })

  it('drop the failure of an earlier request, but not that of the latest', async () => {
    const reads = new SummaryReads()
    const earlier = reads.read(() => Promise.reject(new Error('earlier')))
    const later = reads.read(() => Promise.reject(new Error('later')))
    expect(await earlier).toBeNull()
    await expect(later).rejects.toThrow('later')
  })

  it('cancel the scheduled request when another is sent', async () => {
    vi.useFakeTimers()
    const reads = new SummaryReads()
    reads.schedule(() => undefined)
    const reading = reads.read(() => Promise.resolve('listed'))
    expect(vi.getTimerCount()).toBe(0)
    await reading
    vi.useRealTimers()
  })
})
