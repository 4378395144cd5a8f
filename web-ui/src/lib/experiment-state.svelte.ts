/** An experiment as its owner sees it: status, metrics and latest episode, kept up to date. */

import { getMetrics } from './api'
import type { Episode, ExperimentSummary, MetricsEntry, OwnerExperimentDetail } from './api-types'
import { clipLoader } from './clips'
import { Feed } from './feed.svelte'
import { LatestEpisode } from './latest-episode.svelte'
import { getEpisodes, getOwnerExperiment } from './owner-api'
import { Resource } from './resource.svelte'

/** Interval at which what events do not announce is read again. */
export const REFRESH_MS = 15_000

export class ExperimentState {
  detail = $state.raw<OwnerExperimentDetail | null>(null)
  /** Metrics, oldest first. */
  rows = $state.raw<readonly MetricsEntry[]>([])
  readonly feed: Feed<OwnerExperimentDetail>
  readonly latestEpisode = new LatestEpisode(clipLoader)
  /** The first episode, loaded once the run is finished. */
  readonly firstEpisode = new LatestEpisode(clipLoader)
  /** Episodes of earlier agents, oldest first. */
  readonly history: Resource<Episode[]>
  /** The episode of the history that is selected; null before one is. */
  readonly earlierEpisode = new LatestEpisode(clipLoader)
  readonly #metrics: Resource<MetricsEntry[]>

  constructor(readonly name: string) {
    this.history = new Resource(() => getEpisodes(name), { refresh_ms: REFRESH_MS })
    this.feed = new Feed({
      name,
      request: () => getOwnerExperiment(name),
      received: (detail) => {
        this.detail = detail
        this.#update(detail)
      },
      updated: (summary) => this.#update(summary),
    })
    this.#metrics = new Resource(() => getMetrics(name, this.rows.at(-1)?.id ?? 0), {
      received: (fresh) => (this.rows = mergeMetrics(this.rows, fresh)),
    })
  }

  /** The name as an argument of a shell command. */
  get argument(): string {
    return /^[\w.-]+$/.test(this.name) ? this.name : `'${this.name.replaceAll("'", `'\\''`)}'`
  }

  /** The episodes of the history before the latest episode. */
  get earlier(): readonly Episode[] {
    const step = this.latestEpisode.current?.episode.step ?? 0
    return (this.history.value ?? []).filter((episode) => episode.step < step)
  }

  #update(summary: ExperimentSummary): void {
    if (this.detail !== null) this.detail = { ...this.detail, ...summary }
    // A summary changes with each row of metrics.
    void this.#metrics.read()
    if (summary.phase === 'finished' && summary.first_episode !== null) {
      void this.firstEpisode.show(summary.first_episode)
    }
    if (summary.latest_episode !== null) void this.latestEpisode.show(summary.latest_episode)
  }
}

/** Append metrics; a resumed run continues from its checkpoint and replaces the metrics after it. */
export function mergeMetrics(
  known: readonly MetricsEntry[],
  fresh: readonly MetricsEntry[],
): MetricsEntry[] {
  const ids = new Set(fresh.map(({ id }) => id))
  const firstStep = fresh[0]?.step ?? Infinity
  return [...known.filter(({ id, step }) => !ids.has(id) && step < firstStep), ...fresh]
}
