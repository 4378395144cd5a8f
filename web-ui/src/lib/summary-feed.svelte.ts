/** Summaries of experiments: read from the service and kept up to date by events, which may be newer. */

import { ServerUnreachable } from './api'
import type { ExperimentSummary } from './api-types'
import { listen, type EventHandlers } from './events'
import { RetryTimer } from './retry-timer'

export interface SummaryRead<T> {
  response: T
  /** Summaries of events during the request, by name: they replace those of the response. */
  newer: ReadonlyMap<string, ExperimentSummary>
}

/** Requests for summaries, beside events that may bring newer ones first. */
export class SummaryReads extends RetryTimer {
  /** Summaries of events during each unanswered request. */
  readonly #newer = new Set<Map<string, ExperimentSummary>>()
  #numSent = 0
  /** Number of the latest request that was answered. */
  #answered = 0

  /** Record the summary of an event. */
  record(summary: ExperimentSummary): void {
    for (const newer of this.#newer) newer.set(summary.name, summary)
  }

  /**
   * Cancel the scheduled request and send one.
   *
   * Return null if a later request was answered first, or if this one fails after another was sent. An
   * answer is not dropped because another request is under way: with answers slower than the polling,
   * all of them would be.
   */
  async read<T>(request: () => Promise<T>): Promise<SummaryRead<T> | null> {
    this.cancel()
    const newer = new Map<string, ExperimentSummary>()
    const number = ++this.#numSent
    this.#newer.add(newer)
    try {
      const response = await request()
      if (number < this.#answered) return null
      this.#answered = number
      return { response, newer }
    } catch (error) {
      if (number !== this.#numSent) return null
      throw error
    } finally {
      this.#newer.delete(newer)
    }
  }
}

export interface SummaryFeedOptions<T> {
  /** Name of the experiment; null for all. */
  name: string | null
  request: () => Promise<T>
  /** Show a response. */
  received: (response: T) => void
  /** Show the summary of an event. */
  updated: (summary: ExperimentSummary) => void
  /** Handlers of other events. */
  events?: EventHandlers
  listen?: typeof listen
}

/** The summary of one experiment, or of all, for as long as a page shows it. */
export class SummaryFeed<T> {
  /** Why the latest request failed; null if it did not. */
  failure = $state.raw<unknown>(null)
  readonly #reads = new SummaryReads()

  constructor(private readonly options: SummaryFeedOptions<T>) {}

  /** Read the summaries and follow their changes; return a function that stops. */
  follow(): () => void {
    void this.read()
    const stop = (this.options.listen ?? listen)(this.options.name, {
      ...this.options.events,
      experiment: (summary) => {
        this.#reads.record(summary)
        this.options.updated(summary)
      },
      live: (isLive) => isLive && this.read(),
      poll: () => this.read(),
    })
    return () => {
      this.#reads.stop()
      stop()
    }
  }

  /** Read the summaries now, and again after a while if the service is unreachable. Never rejects. */
  async read(): Promise<void> {
    try {
      const latest = await this.#reads.read(this.options.request)
      if (latest === null) return
      this.options.received(latest.response)
      // Those of events during the request are newer than its response.
      latest.newer.forEach((summary) => this.options.updated(summary))
      this.failure = null
    } catch (error) {
      this.failure = error
      if (error instanceof ServerUnreachable) this.#reads.schedule(() => this.read())
    }
  }
}
