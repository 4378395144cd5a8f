/** A run whose latest episode is watched, also while comparisons are labelled in another window. */

import { getExperiment, ServerUnreachable } from './api'
import type { Episode, ExperimentSummary } from './api-types'
import type { ClipLoader } from './clips'
import { listen } from './events'
import { LatestEpisode, type LoadedEpisode } from './latest-episode.svelte'
import { SummaryReads } from './summary-reads'

export class WatchedRun {
  summary = $state.raw<ExperimentSummary | null>(null)
  failure = $state.raw<unknown>(null)
  /** The episode on screen; it stays until `showNewest`. */
  shown = $state.raw<LoadedEpisode | null>(null)
  readonly #latest: LatestEpisode
  readonly #reads = new SummaryReads()
  readonly #service

  constructor(
    readonly name: string,
    clips: Pick<ClipLoader, 'clip'>,
    service: { getExperiment: typeof getExperiment; listen: typeof listen } = { getExperiment, listen },
  ) {
    this.#latest = new LatestEpisode(clips)
    this.#service = service
  }

  /** A loaded episode that is newer than the one on screen. */
  get newer(): LoadedEpisode | null {
    return this.#latest.current === this.shown ? null : this.#latest.current
  }

  /** Show the newest episode that is loaded. */
  showNewest(): void {
    this.shown = this.#latest.current
  }

  /** Read the run and follow its changes; return a function that stops. */
  follow(): () => void {
    void this.read()
    const stop = this.#service.listen(this.name, {
      experiment: (summary) => {
        this.#reads.record(summary)
        this.#update(summary)
      },
      episode: (episode) => void this.#load(episode),
      live: (isLive) => isLive && this.read(),
      poll: () => this.read(),
    })
    return () => {
      this.#reads.stop()
      stop()
    }
  }

  async read(): Promise<void> {
    try {
      const latest = await this.#reads.read(() => this.#service.getExperiment(this.name))
      if (latest === null) return
      this.#update(latest.newer.get(this.name) ?? latest.response)
      this.failure = null
    } catch (error) {
      this.failure = error
      if (error instanceof ServerUnreachable) this.#reads.schedule(() => this.read())
    }
  }

  #update(summary: ExperimentSummary): void {
    this.summary = summary
    if (summary.latest_episode !== null) void this.#load(summary.latest_episode)
  }

  async #load(episode: Episode): Promise<void> {
    await this.#latest.show(episode)
    this.shown ??= this.#latest.current
  }
}
