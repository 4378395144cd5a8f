/** Requests for summaries of experiments, beside events that may bring newer ones first. */

import type { ExperimentSummary } from './api-types'
import { RetryTimer } from './retry-timer'

export interface SummaryRead<T> {
  response: T
  /** Summaries of events during the request, by name: they replace those of the response. */
  newer: ReadonlyMap<string, ExperimentSummary>
}

export class SummaryReads extends RetryTimer {
  #newer = new Map<string, ExperimentSummary>()
  #numReads = 0

  /** Record the summary of an event. */
  record(summary: ExperimentSummary): void {
    this.#newer.set(summary.name, summary)
  }

  /** Cancel the scheduled request and send one; return null if another is sent before it is answered or fails. */
  async read<T>(request: () => Promise<T>): Promise<SummaryRead<T> | null> {
    this.cancel()
    const newer = (this.#newer = new Map<string, ExperimentSummary>())
    const number = ++this.#numReads
    try {
      const response = await request()
      return number === this.#numReads ? { response, newer } : null
    } catch (error) {
      if (number !== this.#numReads) return null
      throw error
    }
  }
}
