import { afterEach, describe, expect, it, vi } from 'vitest'

import { getBytes, request, RequestRejected, ServerUnreachable, SignedOut, Throttled } from '../src/lib/api'

const PROBLEM = 'application/problem+json'

/** Return the error that a response leads to. */
function errorOf(status: number, contentType: string, type = 'about:blank'): Promise<unknown> {
  const body = JSON.stringify({ type, title: 'Failed', status, detail: 'It failed.' })
  const response = new Response(body, { status, headers: { 'content-type': contentType } })
  vi.stubGlobal('fetch', () => Promise.resolve(response))
  return request('/api/v1/labels').catch((error: unknown) => error)
}

afterEach(() => vi.unstubAllGlobals())

describe('request', () => {
  it.each([400, 403, 404, 409, 413, 422])('is rejected by a problem with status %i', async (status) => {
    const error = await errorOf(status, PROBLEM)
    expect(error).toBeInstanceOf(RequestRejected)
    expect((error as RequestRejected).problem).toMatchObject({ status, detail: 'It failed.' })
  })

  it.each([408, 425, 429, 500, 502, 503, 504, 507])(
    'can be repeated after a problem with status %i',
    async (status) => expect(await errorOf(status, PROBLEM)).toBeInstanceOf(ServerUnreachable),
  )

  it.each([400, 403, 404, 413, 422, 502])(
    'can be repeated if another server answers with status %i',
    async (status) => {
      expect(await errorOf(status, 'text/html')).toBeInstanceOf(ServerUnreachable)
      expect(await errorOf(status, 'application/json')).toBeInstanceOf(ServerUnreachable)
    },
  )

  it.each([PROBLEM, 'text/html'])('is throttled by status 429 with content %s', async (contentType) =>
    expect(await errorOf(429, contentType)).toBeInstanceOf(Throttled))

  it('is rejected if the stored file is corrupt', async () =>
    expect(await errorOf(502, `${PROBLEM}; charset=utf-8`, 'urn:rl-teacher:damaged')).toBeInstanceOf(
      RequestRejected,
    ))

  it('is signed out by status 401 of any server', async () =>
    expect(await errorOf(401, 'text/html')).toBeInstanceOf(SignedOut))
})

describe('reading a body', () => {
  afterEach(() => {
    vi.useRealTimers()
    vi.restoreAllMocks()
  })

  /** Answer requests with a body whose parts, of a byte each, arrive at an interval. */
  function respondSlowly(numParts: number, interval_ms: number): void {
    vi.useFakeTimers()
    vi.spyOn(AbortSignal, 'timeout').mockImplementation((delay_ms) => {
      const timeout = new AbortController()
      setTimeout(() => timeout.abort(), delay_ms)
      return timeout.signal
    })
    vi.stubGlobal('fetch', (_: string, { signal }: { signal: AbortSignal }) => {
      const body = new ReadableStream<Uint8Array>({
        async start(controller) {
          signal.addEventListener('abort', () => controller.error(signal.reason))
          for (let i = 0; i < numParts; i++) {
            await new Promise((resolve) => setTimeout(resolve, interval_ms))
            controller.enqueue(new Uint8Array([i]))
          }
          controller.close()
        },
      })
      return Promise.resolve(new Response(body))
    })
  }

  it('takes as long as parts of it arrive', async () => {
    respondSlowly(6, 10_000)
    const reading = getBytes('/scene').catch((error: unknown) => error)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(new Uint8Array((await reading) as ArrayBuffer)).toEqual(new Uint8Array([0, 1, 2, 3, 4, 5]))
  })

  it('fails if no part arrives for a while', async () => {
    respondSlowly(2, 20_000)
    const reading = getBytes('/scene').catch((error: unknown) => error)
    await vi.advanceTimersByTimeAsync(40_000)
    expect(await reading).toBeInstanceOf(ServerUnreachable)
  })
})
