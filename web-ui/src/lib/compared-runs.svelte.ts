/** Metrics of other experiments, to draw beside those of the page's experiment. */

import { getExperiments, getMetrics } from './api'
import type { MetricsEntry } from './api-types'
import { mergeMetrics } from './experiment-state.svelte'
import { readUntilDone } from './retry-timer'

/** There are colours for this many runs besides the page's own. */
export const MAX_COMPARED = 3

const REFRESH_MS = 15_000

export class ComparedRuns {
  runs = $state.raw<readonly { name: string; rows: readonly MetricsEntry[] }[]>([])
  /** Names of the experiments to choose from. */
  names = $state.raw<readonly string[]>([])

  /** @param name of the page's own experiment. */
  constructor(readonly name: string) {}

  start(): () => void {
    // A failed request is repeated; the header reports an unreachable server.
    const stop = readUntilDone(async () => {
      this.names = (await getExperiments()).map(({ name }) => name).filter((name) => name !== this.name)
    })
    const timer = setInterval(() => void this.#refresh(), REFRESH_MS)
    return () => {
      stop()
      clearInterval(timer)
    }
  }

  /** Compare with these experiments instead of the present ones. */
  select(names: readonly string[]): void {
    this.runs = names
      .filter((name) => name !== this.name)
      .slice(0, MAX_COMPARED)
      .map((name) => this.runs.find((run) => run.name === name) ?? { name, rows: [] })
    void this.#refresh()
  }

  async #refresh(): Promise<void> {
    await Promise.all(this.runs.map(({ name, rows }) => this.#read(name, rows.at(-1)?.id ?? 0)))
  }

  async #read(name: string, after: number): Promise<void> {
    try {
      const fresh = await getMetrics(name, after)
      this.runs = this.runs.map((run) =>
        run.name === name ? { name, rows: mergeMetrics(run.rows, fresh) } : run,
      )
    } catch {
      // The next refresh tries again.
    }
  }
}
