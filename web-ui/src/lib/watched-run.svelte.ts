/** A run whose latest episode is watched, also while comparisons are labelled in another window. */

import { getExperiment } from './api'
import type { Episode, ExperimentDetail, ExperimentSummary } from './api-types'
import type { ClipLoader } from './clips'
import { listen } from './events'
import { LatestEpisode, type LoadedEpisode } from './latest-episode.svelte'
import { SummaryFeed } from './summary-feed.svelte'

export class WatchedRun {
  summary = $state.raw<ExperimentSummary | null>(null)
  /** The episode on screen; it stays until `showNewest`. */
  shown = $state.raw<LoadedEpisode | null>(null)
  readonly feed: SummaryFeed<ExperimentDetail>
  readonly latest: LatestEpisode

  constructor(
    name: string,
    clips: Pick<ClipLoader, 'clip'>,
    service: { getExperiment: typeof getExperiment; listen: typeof listen } = { getExperiment, listen },
  ) {
    this.latest = new LatestEpisode(clips)
    this.feed = new SummaryFeed({
      name,
      request: () => service.getExperiment(name),
      received: (summary) => this.#update(summary),
      updated: (summary) => this.#update(summary),
      listen: service.listen,
    })
  }

  /** The latest loaded episode; null if it is on screen, perhaps loaded again after a late event. */
  get newer(): LoadedEpisode | null {
    const { current } = this.latest
    return current?.episode.clip.hash === this.shown?.episode.clip.hash ? null : current
  }

  /** Show the newest episode that is loaded. */
  showNewest(): void {
    this.shown = this.latest.current
  }

  #update(summary: ExperimentSummary): void {
    this.summary = summary
    if (summary.latest_episode !== null) void this.#load(summary.latest_episode)
  }

  async #load(episode: Episode): Promise<void> {
    await this.latest.show(episode)
    this.shown ??= this.latest.current
  }
}
