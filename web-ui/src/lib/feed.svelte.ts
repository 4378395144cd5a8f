/** Summaries of experiments: read from the service, and kept up to date by its events. */

import { API } from './api'
import type { ExperimentSummary } from './api-types'
import { Resource } from './resource.svelte'

/** Time between two reads while there are no events. */
const POLL_MS = 4_000

export interface FeedOptions<T> {
  /** Name of the experiment; null for all. */
  name: string | null
  request: () => Promise<T>
  /** Show a response. */
  received: (response: T) => void
  /** Show the summary of an event. */
  updated: (summary: ExperimentSummary) => void
  /** The stream of events was opened. */
  opened?: () => void
}

/** The summary of one experiment, or of all, for as long as a page shows it. */
export class Feed<T> {
  readonly #resource: Resource<T>
  /** Summaries of events since the request under way was sent: they are newer than its response. */
  readonly #newer = new Map<string, ExperimentSummary>()
  #source: EventSource | null = null

  constructor(private readonly options: FeedOptions<T>) {
    const request = () => {
      this.#newer.clear()
      return options.request()
    }
    const received = (response: T) => {
      options.received(response)
      this.#newer.forEach((summary) => options.updated(summary))
      // The service answers again: it may have rejected the stream.
      if (this.#source?.readyState === EventSource.CLOSED) this.#open()
    }
    this.#resource = new Resource(request, { received, refresh_ms: POLL_MS })
  }

  get failure(): unknown {
    return this.#resource.failure
  }

  /** Read the summaries now. Never rejects. */
  read(): Promise<void> {
    return this.#resource.read()
  }

  /**
   * Read the summaries and follow their changes; return a function that stops.
   *
   * A hidden page has no stream: over HTTP/1.1 a browser opens six connections to a server, for all tabs
   * together, so the streams of six tabs would block every request.
   */
  start(): () => void {
    const stop = this.#resource.start()
    const followVisibility = () => {
      this.#close()
      if (!document.hidden) this.#open()
    }
    document.addEventListener('visibilitychange', followVisibility)
    followVisibility()
    return () => {
      document.removeEventListener('visibilitychange', followVisibility)
      this.#close()
      stop()
    }
  }

  #open(): void {
    const { name, updated, opened } = this.options
    const query = name === null ? '' : `?experiment=${encodeURIComponent(name)}`
    const source = new EventSource(`${API}/events${query}`)
    this.#source = source
    source.onopen = () => {
      this.#resource.refresh_ms = null
      void this.read()
      opened?.()
    }
    // The browser reconnects by itself unless the service answered with an error.
    source.onerror = () => this.#poll()
    source.addEventListener('experiment', ({ data }) => {
      const summary = JSON.parse(data as string) as ExperimentSummary
      this.#newer.set(summary.name, summary)
      updated(summary)
    })
  }

  #close(): void {
    this.#source?.close()
    this.#source = null
    this.#poll()
  }

  /** A stream that is lost fails again with each attempt to reconnect: these must not postpone the read. */
  #poll(): void {
    if (this.#resource.refresh_ms !== null) return
    this.#resource.refresh_ms = POLL_MS
    this.#resource.schedule(POLL_MS)
  }
}
