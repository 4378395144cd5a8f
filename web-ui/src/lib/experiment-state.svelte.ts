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
  readonly feed: Feed<[OwnerExperimentDetail, MetricsEntry[]]>
  readonly latestEpisode = new LatestEpisode(clipLoader)
  /** The first episode, loaded once the run is finished. */
  readonly firstEpisode = new LatestEpisode(clipLoader)
  /** Episodes of earlier agents, oldest first. */
  readonly history: Resource<Episode[]>
  /** The episode of the history that is selected; null before one is. */
  readonly earlierEpisode = new LatestEpisode(clipLoader)
  /** Id of the last metrics of a response; those of events may follow a gap. */
  #readUpTo = 0

  constructor(readonly name: string) {
    this.history = new Resource(() => getEpisodes(name), { refresh_ms: REFRESH_MS })
    this.feed = new Feed({
      name,
      request: () => Promise.all([getOwnerExperiment(name), getMetrics(name, this.#readUpTo)]),
      received: (response) => this.#receive(response),
      updated: (summary) => this.#update(summary),
      metrics: (row) => (this.rows = mergeMetrics(this.rows, [row])),
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

  #receive([detail, fresh]: [OwnerExperimentDetail, MetricsEntry[]]): void {
    this.detail = detail
    this.#update(detail)
    this.#readUpTo = fresh.at(-1)?.id ?? this.#readUpTo
    // Events may have brought newer metrics than the response has.
    const newer = this.rows.filter(({ id }) => id > this.#readUpTo)
    this.rows = mergeMetrics(mergeMetrics(this.rows, fresh), newer)
  }

  #update(summary: ExperimentSummary): void {
    if (this.detail !== null) this.detail = { ...this.detail, ...summary }
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
