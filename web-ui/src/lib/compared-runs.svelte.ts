/** Metrics of other experiments, to draw beside those of the page's experiment. */

import { getExperiments, getMetrics } from './api'
import type { MetricsEntry } from './api-types'
import { mergeMetrics, REFRESH_MS } from './experiment-state.svelte'
import { Resource } from './resource.svelte'

/** There are colours for this many runs besides the page's own. */
export const MAX_COMPARED = 3

export class ComparedRuns {
  runs = $state.raw<readonly { name: string; rows: readonly MetricsEntry[] }[]>([])
  readonly #all = new Resource(getExperiments)
  readonly #refresh = new Resource(() => this.#read(), { refresh_ms: REFRESH_MS })

  /** @param name of the page's own experiment. */
  constructor(readonly name: string) {}

  start(): () => void {
    // A failed request is repeated; the header reports an unreachable server.
    const stops = [this.#all.start(), this.#refresh.start()]
    return () => stops.forEach((stop) => stop())
  }

  /** Names of the experiments to choose from. */
  get names(): readonly string[] {
    return (this.#all.value ?? []).map(({ name }) => name).filter((name) => name !== this.name)
  }

  /** Compare with these experiments instead of the present ones. */
  select(names: readonly string[]): void {
    this.runs = names
      .filter((name) => name !== this.name)
      .slice(0, MAX_COMPARED)
      .map((name) => this.runs.find((run) => run.name === name) ?? { name, rows: [] })
    void this.#refresh.read()
  }

  async #read(): Promise<void> {
    for (const { name, rows } of this.runs) {
      const fresh = await getMetrics(name, rows.at(-1)?.id ?? 0)
      this.runs = this.runs.map((run) =>
        run.name === name ? { name, rows: mergeMetrics(run.rows, fresh) } : run,
      )
    }
  }
}
