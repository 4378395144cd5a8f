import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { readUntilDone, RETRY_MS, RetryTimer } from '../src/lib/retry-timer'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function create() {
  const read = vi.fn()
  const timer = new RetryTimer()
  return { read, timer }
}

describe('a retry timer', () => {
  it('calls a function once after the delay', () => {
    const { read, timer } = create()
    timer.schedule(read)
    vi.advanceTimersByTime(RETRY_MS - 1)
    expect(read).not.toHaveBeenCalled()
    vi.advanceTimersByTime(10 * RETRY_MS)
    expect(read).toHaveBeenCalledOnce()
  })

  it('replaces the call that was scheduled before', () => {
    const { read, timer } = create()
    const earlier = vi.fn()
    timer.schedule(earlier)
    timer.schedule(read, 500)
    expect(vi.getTimerCount()).toBe(1)
    vi.advanceTimersByTime(500)
    expect(read).toHaveBeenCalledOnce()
    vi.advanceTimersByTime(RETRY_MS)
    expect(earlier).not.toHaveBeenCalled()
  })

  it('calls nothing after it was cancelled, until a call is scheduled again', () => {
    const { read, timer } = create()
    timer.schedule(read)
    timer.cancel()
    vi.advanceTimersByTime(RETRY_MS)
    expect(read).not.toHaveBeenCalled()
    timer.schedule(read)
    vi.advanceTimersByTime(RETRY_MS)
    expect(read).toHaveBeenCalledOnce()
  })

  it('calls nothing after it was stopped, even if a read fails later', () => {
    const { read, timer } = create()
    timer.schedule(read)
    timer.stop()
    timer.schedule(read)
    expect([timer.isStopped, vi.getTimerCount()]).toEqual([true, 0])
  })
})

describe('reading until it succeeds', () => {
  it('repeats a read that fails, and not one that succeeds', async () => {
    const read = vi.fn().mockRejectedValueOnce(new Error('offline')).mockResolvedValue(null)
    readUntilDone(read)
    await vi.advanceTimersByTimeAsync(10 * RETRY_MS)
    expect(read).toHaveBeenCalledTimes(2)
  })

  it('ends when it is stopped', async () => {
    const read = vi.fn().mockRejectedValue(new Error('offline'))
    const stop = readUntilDone(read)
    stop()
    await vi.advanceTimersByTimeAsync(10 * RETRY_MS)
    expect(read).toHaveBeenCalledOnce()
  })
})
