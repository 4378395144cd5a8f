import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { RequestRejected, ServerUnreachable } from '../src/lib/api'
import { Resource } from '../src/lib/resource.svelte'
import { setHidden, stubBrowser } from './fakes'

beforeEach(() => {
  stubBrowser()
  vi.useFakeTimers()
  vi.spyOn(Math, 'random').mockReturnValue(1)
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
  vi.restoreAllMocks()
})

const offline = new ServerUnreachable('offline')

describe('a resource', () => {
  it('doubles the time between reads that fail, up to a limit, and starts again after a success', async () => {
    const request = vi.fn(() => Promise.reject<number>(offline))
    const resource = new Resource(request)
    const times: number[] = []
    request.mockImplementation(() => (times.push(Date.now()), Promise.reject(offline)))
    resource.start()
    await vi.advanceTimersByTimeAsync(50_000)
    const waited = () => times.slice(1).map((time, i) => time - times[i]!)
    expect(waited()).toEqual([500, 1000, 2000, 4000, 8000, 15000, 15000])
    request.mockResolvedValueOnce(7)
    await resource.read()
    expect([resource.value, resource.failure, vi.getTimerCount()]).toEqual([7, null, 0])
    times.length = 0
    void resource.read()
    await vi.advanceTimersByTimeAsync(600)
    expect(waited()).toEqual([500])
    resource.stop()
    expect(vi.getTimerCount()).toBe(0)
  })

  it('does not repeat a read that is rejected, unless it is told to', async () => {
    const rejection = new RequestRejected({ type: '', title: '', status: 404, detail: '' })
    const fail = () => Promise.reject(rejection)
    const resource = new Resource(fail)
    await resource.read()
    expect([resource.failure, vi.getTimerCount()]).toEqual([rejection, 0])
    const stubborn = new Resource(fail, { retries: () => true })
    await stubborn.read()
    expect(vi.getTimerCount()).toBe(1)
  })

  it('is read once more if that is asked for during a read, whose response may be older', async () => {
    const responses: ((value: string) => void)[] = []
    const resource = new Resource(() => new Promise<string>((resolve) => responses.push(resolve)))
    const reading = [resource.read(), resource.read(), resource.read()]
    responses[0]!('older')
    await vi.advanceTimersByTimeAsync(0)
    expect([resource.value, responses.length]).toEqual(['older', 2])
    responses[1]!('newer')
    await Promise.all(reading)
    expect([resource.value, responses.length]).toEqual(['newer', 2])
  })

  it('is refreshed, by a hidden page only when it is visible again', async () => {
    const request = vi.fn(() => Promise.resolve(1))
    const stop = new Resource(request, { refresh_ms: 1000 }).start()
    await vi.advanceTimersByTimeAsync(2500)
    expect(request).toHaveBeenCalledTimes(3)
    setHidden(true)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(request).toHaveBeenCalledTimes(3)
    setHidden(false)
    await vi.advanceTimersByTimeAsync(0)
    expect(request).toHaveBeenCalledTimes(4)
    stop()
  })

  it('drops the response that arrives after it was stopped', async () => {
    let respond: (value: number) => void = () => undefined
    const received = vi.fn()
    const resource = new Resource(() => new Promise<number>((resolve) => (respond = resolve)), { received })
    const reading = resource.read()
    resource.stop()
    respond(1)
    await reading
    expect([resource.value, received.mock.calls, vi.getTimerCount()]).toEqual([null, [], 0])
  })
})
