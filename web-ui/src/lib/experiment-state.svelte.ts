/** An experiment as its owner sees it: status, metrics and latest episode, kept up to date. */

import { getMetrics, ServerUnreachable } from './api'
import type { Episode, ExperimentSummary, MetricsEntry, OwnerExperimentDetail } from './api-types'
import type { ClipLoader } from './clips'
import { listen } from './events'
import { LatestEpisode } from './latest-episode.svelte'
import { getEpisodes, getOwnerExperiment } from './owner-api'
import { SummaryReads } from './summary-reads'

export class ExperimentState {
  detail = $state.raw<OwnerExperimentDetail | null>(null)
  /** Metrics, oldest first. */
  rows = $state.raw<readonly MetricsEntry[]>([])
  failure = $state.raw<unknown>(null)
  readonly latestEpisode: LatestEpisode
  /** The first episode, loaded once the run is finished. */
  readonly firstEpisode: LatestEpisode
  /** Episodes of earlier agents, oldest first. */
  history = $state.raw<readonly Episode[]>([])
  /** The episode of the history that is selected; null before one is. */
  readonly earlierEpisode: LatestEpisode
  readonly #reads = new SummaryReads()
  /** Id of the last metrics of a response; those of events may follow a gap. */
  #readUpTo = 0

  constructor(
    readonly name: string,
    clips: ClipLoader,
  ) {
    this.latestEpisode = new LatestEpisode(clips)
    this.firstEpisode = new LatestEpisode(clips)
    this.earlierEpisode = new LatestEpisode(clips)
  }

  /** Read the experiment and follow its changes; return a function that stops. */
  follow(): () => void {
    void this.read()
    const stop = listen(this.name, {
      experiment: (summary) => {
        this.#reads.record(summary)
        this.#update(summary)
      },
      progress: (progress) => (this.detail = this.detail && { ...this.detail, progress }),
      metrics: (row) => (this.rows = mergeMetrics(this.rows, [row])),
      episode: (episode) => void this.latestEpisode.show(episode),
      live: (isLive) => isLive && this.read(),
      poll: () => this.read(),
    })
    return () => {
      this.#reads.stop()
      stop()
    }
  }

  /** Read the episodes of earlier agents; a failure leaves those known. */
  async readHistory(): Promise<void> {
    try {
      this.history = await getEpisodes(this.name)
    } catch {
      // Repeated later; the header reports an unreachable server.
    }
  }

  async read(): Promise<void> {
    try {
      const latest = await this.#reads.read(() =>
        Promise.all([getOwnerExperiment(this.name), getMetrics(this.name, this.#readUpTo)]),
      )
      if (latest === null) return
      const [detail, fresh] = latest.response
      this.detail = detail
      this.#update(latest.newer.get(this.name) ?? detail)
      this.#readUpTo = fresh.at(-1)?.id ?? this.#readUpTo
      // Events may have brought newer metrics than the response has.
      const newer = this.rows.filter(({ id }) => id > this.#readUpTo)
      this.rows = mergeMetrics(mergeMetrics(this.rows, fresh), newer)
      this.failure = null
    } catch (error) {
      this.failure = error
      if (error instanceof ServerUnreachable) this.#reads.schedule(() => this.read())
    }
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
