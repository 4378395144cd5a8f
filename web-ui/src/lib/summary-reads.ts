/** Requests for summaries of experiments, beside events that may bring newer ones first. */

import type { ExperimentSummary } from './api-types'

export interface SummaryRead<T> {
  response: T
  /** Summaries of events during the request, by name: they replace those of the response. */
  newer: ReadonlyMap<string, ExperimentSummary>
}

export class SummaryReads {
  #newer = new Map<string, ExperimentSummary>()
  #numReads = 0

  /** Record the summary of an event. */
  record(summary: ExperimentSummary): void {
    this.#newer.set(summary.name, summary)
  }

  /** Send a request; return null if another one was sent before it was answered or failed. */
  async read<T>(request: () => Promise<T>): Promise<SummaryRead<T> | null> {
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
