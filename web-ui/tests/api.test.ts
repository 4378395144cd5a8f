import { afterEach, describe, expect, it, vi } from 'vitest'

import { request, RequestRejected, ServerUnreachable, SignedOut, Throttled } from '../src/lib/api'

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
    expect(await errorOf(502, `${PROBLEM}; charset=utf-8`, '/api/docs#damaged')).toBeInstanceOf(
      RequestRejected,
    ))

  it('is signed out by status 401 of any server', async () =>
    expect(await errorOf(401, 'text/html')).toBeInstanceOf(SignedOut))
})
