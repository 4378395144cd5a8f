/** Requests to the service. Every failure is one of three errors: unreachable, signed out, rejected. */

import type * as T from './api-types'

export const API = '/api/v1'
/** Longest time until the response to a request, and between two parts of a body that is read. */
const TIMEOUT_MS = 15_000
/** The only problem with a status of 5xx that stays: the requested file is corrupt. */
const DAMAGED = 'urn:rl-teacher:damaged'

/** The service did not respond (perhaps a proxy did), or cannot process requests at present. */
export class ServerUnreachable extends Error {}

/** The service, or a proxy, rejects further requests for a few seconds. */
export class Throttled extends ServerUnreachable {}

/** The browser has no valid access cookie. */
export class SignedOut extends Error {}

/** The service rejected the request. */
export class RequestRejected extends Error {
  constructor(readonly problem: T.Problem) {
    super(problem.detail || problem.title)
  }
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response
  try {
    const signal = init.signal ?? AbortSignal.timeout(TIMEOUT_MS)
    response = await fetch(path, { credentials: 'same-origin', ...init, signal })
  } catch (error) {
    throw new ServerUnreachable('The server cannot be reached.', { cause: error })
  }
  if (response.ok) return response
  if (response.status === 401) throw new SignedOut('This browser is not signed in.')
  const problem = await problemOf(response)
  if (isTemporary(response, problem)) {
    const Failure = response.status === 429 ? Throttled : ServerUnreachable
    throw new Failure(problem.detail || problem.title)
  }
  throw new RequestRejected(problem)
}

function isTemporary({ status, headers }: Response, { type }: T.Problem): boolean {
  const isOfService = headers.get('content-type')?.startsWith('application/problem+json')
  return !isOfService || [408, 425, 429].includes(status) || (status >= 500 && type !== DAMAGED)
}

async function problemOf(response: Response): Promise<T.Problem> {
  const empty = { type: 'about:blank', title: response.statusText, status: response.status }
  try {
    return { detail: '', ...empty, ...((await response.json()) as Partial<T.Problem>) }
  } catch {
    return { detail: `The server responded with status ${response.status}.`, ...empty }
  }
}

/** Read the body of a response. A large one, such as a scene, may take long on a slow network. */
async function getBody<T>(
  url: string,
  read: (response: Response) => Promise<T>,
  init: RequestInit = {},
): Promise<T> {
  const timeout = new AbortController()
  let timer: ReturnType<typeof setTimeout> | undefined
  const restartTimer = () => {
    clearTimeout(timer)
    timer = setTimeout(() => timeout.abort(), TIMEOUT_MS)
  }
  restartTimer()
  try {
    const response = await request(url, { signal: timeout.signal, ...init })
    return await readParts(response, read, restartTimer)
  } finally {
    clearTimeout(timer)
  }
}

/** @param onpart is called for each part of the body that arrives. */
async function readParts<T>(
  response: Response,
  read: (response: Response) => Promise<T>,
  onpart: () => void,
): Promise<T> {
  const watch = new TransformStream<Uint8Array, Uint8Array>({
    transform(part, controller) {
      onpart()
      controller.enqueue(part)
    },
  })
  try {
    const { body, headers } = response
    return await read(new Response(body?.pipeThrough(watch), { headers }))
  } catch (error) {
    throw new ServerUnreachable('The response of the server was incomplete.', { cause: error })
  }
}

export const getJson = <T>(url: string): Promise<T> =>
  getBody(url, (response) => response.json() as Promise<T>)

export const getBytes = (url: string): Promise<ArrayBuffer> =>
  getBody(url, (response) => response.arrayBuffer())

export const getBlob = (url: string, init: RequestInit = {}): Promise<Blob> =>
  getBody(url, (response) => response.blob(), init)

/** Send JSON and return the decoded response, or null for an empty one. */
export async function sendJson<T>(method: string, path: string, content: unknown): Promise<T> {
  const response = await request(path, { method, ...jsonOf(content) })
  const text = await response.text()
  return (text === '' ? null : JSON.parse(text)) as T
}

const jsonOf = (content: unknown): RequestInit => ({
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(content),
})

export const pathOf = (name: string) => `${API}/experiments/${encodeURIComponent(name)}`

export const getExperiments = (): Promise<T.ExperimentSummary[]> => getJson(`${API}/experiments`)

export const getExperiment = (name: string): Promise<T.ExperimentDetail> => getJson(pathOf(name))

export const getMetrics = (name: string, after = 0): Promise<T.MetricsEntry[]> =>
  getJson(`${pathOf(name)}/metrics?after=${after}`)

/** Lease comparisons to label. */
export function getNext(
  name: string,
  limit: number,
  exclude: Iterable<number>,
): Promise<T.NextComparisons> {
  const query = new URLSearchParams({ limit: String(limit) })
  for (const id of exclude) query.append('exclude', String(id))
  return getJson(`${pathOf(name)}/comparisons/next?${query}`)
}

/** Paths of files to download; `?format=` is added to them. */
export const downloadPath = {
  clip: (hash: string) => `${API}/clips/${hash}/download`,
  comparison: (id: number) => `${API}/comparisons/${id}/download`,
  episode: (number: number) => `${API}/play/episodes/${number}/download`,
}

/** Fetch a comparison without leasing it. */
export const getComparison = (id: number): Promise<T.Comparison> =>
  getJson(`${API}/comparisons/${id}`)

/** Store an ordering of several clips as labels of their pairs. */
export const postRanking = (name: string, ranking: T.RankingSubmission): Promise<T.RankingReceipt> =>
  sendJson('POST', `${pathOf(name)}/rankings`, ranking)

/** Withdraw the labels of a ranking; its comparisons are leased again. */
export const withdrawRanking = (name: string, id: string): Promise<T.Comparison[]> =>
  sendJson('DELETE', `${pathOf(name)}/rankings/${id}`, {})

export const getMyLabels = (name: string, limit = 20): Promise<T.PastLabel[]> =>
  getJson(`${pathOf(name)}/labels?limit=${limit}`)

export const getLabelEffect = (name: string): Promise<T.LabelEffect> => getJson(`${pathOf(name)}/effect`)

export async function postLabels(labels: T.LabelSubmission[]): Promise<T.LabelReceipt> {
  const response = await request(`${API}/labels`, {
    method: 'POST',
    ...jsonOf({ labels }),
    // Browsers limit the size of requests that outlive the page.
    keepalive: labels.length <= 20,
  })
  return (await response.json()) as T.LabelReceipt
}

export const getCurrentUser = (): Promise<T.CurrentUser> => getJson(`${API}/me`)

/** End the session of this browser. */
export const signOut = (): Promise<null> => sendJson('POST', `${API}/sign-out`, {})

export const join = (invite: string, name: string, requestId: string): Promise<T.JoinResponse> =>
  sendJson('POST', `${API}/join`, { invite, name, request_id: requestId })

export const renewLeases = (leases: readonly string[]): Promise<T.LeaseRenewal> =>
  sendJson('POST', `${API}/leases/renew`, { leases })

/** Return comparisons for others to label; also while the page is closed (keepalive). */
export async function releaseLeases(leases: readonly string[]): Promise<void> {
  await request(`${API}/leases/release`, { method: 'POST', ...jsonOf({ leases }), keepalive: true })
}
