/** Talks to the service. Every failure is one of three errors: away, signed out, or refused. */

import type {
  Comparison,
  Detail,
  Episode,
  Me,
  MetricsRow,
  NewLabel,
  PastLabel,
  Problem,
  Progress,
  Receipt,
  Renewal,
  Summary,
} from './types'

export const API = '/api/v1'
const TIMEOUT_MS = 15_000

/** The service did not answer, or says that it cannot right now. */
export class ServerAway extends Error {}

/** The browser has no valid access cookie. */
export class SignedOut extends Error {}

/** The service understood, and says no. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title)
  }
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response
  try {
    const signal = init.signal ?? AbortSignal.timeout(TIMEOUT_MS)
    response = await fetch(path, { credentials: 'same-origin', ...init, signal })
  } catch (error) {
    throw new ServerAway('The server cannot be reached.', { cause: error })
  }
  if (response.ok) return response
  if (response.status === 401) throw new SignedOut('This browser is not signed in.')
  const problem = await problemOf(response)
  const isPassing = [429, 500, 503, 504].includes(response.status)
  if (isPassing) throw new ServerAway(problem.detail || problem.title)
  throw new Refused(problem)
}

async function problemOf(response: Response): Promise<Problem> {
  const empty = { type: 'about:blank', title: response.statusText, status: response.status }
  try {
    return { detail: '', ...empty, ...((await response.json()) as Partial<Problem>) }
  } catch {
    return { detail: `The server answered ${response.status}.`, ...empty }
  }
}

export async function getJson<T>(path: string): Promise<T> {
  const response = await request(path)
  try {
    return (await response.json()) as T
  } catch (error) {
    throw new ServerAway('The answer of the server was cut short.', { cause: error })
  }
}

async function getBody<T>(url: string, read: (response: Response) => Promise<T>): Promise<T> {
  const response = await request(url)
  try {
    return await read(response)
  } catch (error) {
    throw new ServerAway('The answer of the server was cut short.', { cause: error })
  }
}

/** Sends JSON, and reads what comes back. */
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

export const getExperiments = async (): Promise<Summary[]> =>
  (await getJson<{ experiments: Summary[] }>(`${API}/experiments`)).experiments

export const getExperiment = (name: string): Promise<Detail> => getJson(pathOf(name))

export const getMetrics = async (name: string, after = 0): Promise<MetricsRow[]> =>
  (await getJson<{ rows: MetricsRow[] }>(`${pathOf(name)}/metrics?after=${after}`)).rows

export interface Next {
  comparisons: Comparison[]
  progress: Progress
}

export function getNext(name: string, limit: number, exclude: Iterable<number>): Promise<Next> {
  const query = new URLSearchParams({ limit: String(limit) })
  for (const id of exclude) query.append('exclude', String(id))
  return getJson(`${pathOf(name)}/comparisons/next?${query}`)
}

/** One comparison, answered or not. */
export const getComparison = (id: number): Promise<Comparison> =>
  getJson(`${API}/comparisons/${id}`)

export const getMyLabels = async (name: string, limit = 20): Promise<PastLabel[]> =>
  (await getJson<{ labels: PastLabel[] }>(`${pathOf(name)}/labels?limit=${limit}`)).labels

export async function postLabels(labels: NewLabel[]): Promise<Receipt> {
  const response = await request(`${API}/labels`, {
    method: 'POST',
    ...jsonOf({ labels }),
    keepalive: labels.length <= 20,
  })
  return (await response.json()) as Receipt
}

export const getMe = (): Promise<Me> => getJson(`${API}/me`)

/** Where an invite leads; the cookie comes along. */
export interface Joined extends Me {
  experiment: string | null
}

export const join = (invite: string, name: string): Promise<Joined> =>
  sendJson('POST', `${API}/join`, { invite, name })

export const renewLeases = (leases: readonly string[]): Promise<Renewal> =>
  sendJson('POST', `${API}/leases/renew`, { leases })

/** Gives comparisons back, so that others get them; also while the page is being left. */
export async function releaseLeases(leases: readonly string[]): Promise<void> {
  await request(`${API}/leases/release`, { method: 'POST', ...jsonOf({ leases }), keepalive: true })
}

export const getBytes = (url: string): Promise<ArrayBuffer> =>
  getBody(url, (response) => response.arrayBuffer())

export const getBlob = (url: string): Promise<Blob> => getBody(url, (response) => response.blob())

export const getScene = <T>(url: string): Promise<T> => getJson(url)

/** What the service tells of its own accord. */
export interface Events {
  experiment?: (summary: Summary) => void
  progress?: (progress: Progress) => void
  metrics?: (row: MetricsRow) => void
  episode?: (episode: Episode) => void
  /** Whether events arrive by themselves now. */
  live?: (isLive: boolean) => void
  /** Asked for while they do not: fetch what the page shows. */
  poll?: () => void
}

const POLL_MS = 4_000
const RECONNECT_MS = 3_000
const NAMES = ['experiment', 'progress', 'metrics', 'episode'] as const

/**
 * Listens to the service's events; where they do not come through, asks by polling and goes on
 * trying.
 *
 * @returns a function that ends it.
 */
export function listen(experiment: string | null, events: Events): () => void {
  const query = experiment === null ? '' : `?experiment=${encodeURIComponent(experiment)}`
  let source: EventSource | null = null
  let isLive = false
  let retry: ReturnType<typeof setTimeout> | undefined

  const setLive = (now: boolean) => {
    if (now === isLive) return
    isLive = now
    events.live?.(now)
  }
  const open = () => {
    source = new EventSource(`${API}/events${query}`)
    source.onopen = () => setLive(true)
    source.onerror = () => {
      setLive(false)
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(open, RECONNECT_MS)
    }
    for (const name of NAMES) {
      source.addEventListener(name, (event) => deliver(events, name, event as MessageEvent))
    }
  }
  const polling = setInterval(() => {
    if (!isLive && !document.hidden) events.poll?.()
  }, POLL_MS)
  open()
  return () => {
    clearInterval(polling)
    clearTimeout(retry)
    source?.close()
  }
}

function deliver(events: Events, name: (typeof NAMES)[number], event: MessageEvent): void {
  let content: unknown
  try {
    content = JSON.parse(event.data as string)
  } catch {
    return
  }
  ;(events[name] as ((content: unknown) => void) | undefined)?.(content)
}
