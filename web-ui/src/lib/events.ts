/** Server-sent events of the service, with polling as a fallback. */

import { API } from './api'
import type { ExperimentSummary, MetricsEntry } from './api-types'

const POLL_MS = 4_000
const RECONNECT_MS = 3_000
const NAMES = ['experiment', 'metrics'] as const

export interface EventHandlers {
  experiment?: (summary: ExperimentSummary) => void
  metrics?: (row: MetricsEntry) => void
  /** The event stream was opened or lost. */
  live?: (isLive: boolean) => void
  /** Called regularly while the stream is lost: fetch what the page shows. */
  poll?: () => void
}

/**
 * Subscribe to the events of one experiment, or of all. Poll and reconnect while the stream is lost.
 *
 * A hidden page has no stream: over HTTP/1.1 a browser opens six connections to a server, for all tabs
 * together, so the streams of six tabs would block every request.
 *
 * @returns a function that ends the subscription.
 */
export function listen(experiment: string | null, handlers: EventHandlers): () => void {
  const query = experiment === null ? '' : `?experiment=${encodeURIComponent(experiment)}`
  let source: EventSource | null = null
  let isLive = false
  let reconnectTimer: ReturnType<typeof setTimeout> | undefined

  const setLive = (now: boolean) => {
    if (now === isLive) return
    isLive = now
    handlers.live?.(now)
  }
  const close = () => {
    clearTimeout(reconnectTimer)
    source?.close()
    source = null
    setLive(false)
  }
  const open = () => {
    if (document.hidden) return
    source = new EventSource(`${API}/events${query}`)
    source.onopen = () => setLive(true)
    source.onerror = () => {
      setLive(false)
      // The browser reconnects by itself unless the service answered with an error.
      if (source?.readyState === EventSource.CLOSED) reconnectTimer = setTimeout(open, RECONNECT_MS)
    }
    for (const name of NAMES) {
      source.addEventListener(name, (event) => dispatch(handlers, name, event as MessageEvent))
    }
  }
  const polling = setInterval(() => {
    if (!isLive && !document.hidden) handlers.poll?.()
  }, POLL_MS)
  const followVisibility = () => {
    close()
    open()
  }
  document.addEventListener('visibilitychange', followVisibility)
  open()
  return () => {
    clearInterval(polling)
    document.removeEventListener('visibilitychange', followVisibility)
    clearTimeout(reconnectTimer)
    source?.close()
  }
}

function dispatch(handlers: EventHandlers, name: (typeof NAMES)[number], event: MessageEvent): void {
  let content: unknown
  try {
    content = JSON.parse(event.data as string)
  } catch {
    return
  }
  ;(handlers[name] as ((content: unknown) => void) | undefined)?.(content)
}
