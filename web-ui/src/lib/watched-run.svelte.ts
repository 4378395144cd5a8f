/** A run whose latest episode is watched, also while comparisons are labelled in another window. */

import { getExperiment } from './api'
import type { ExperimentSummary } from './api-types'
import type { ClipLoader } from './clips'
import { Feed } from './feed.svelte'
import { LatestEpisode, type LoadedEpisode } from './latest-episode.svelte'

export class WatchedRun {
  summary = $state.raw<ExperimentSummary | null>(null)
  /** The episode on screen; it stays until `showNewest`. */
  shown = $state.raw<LoadedEpisode | null>(null)
  readonly feed: Feed<ExperimentSummary>
  readonly latest: LatestEpisode

  constructor(name: string, clips: Pick<ClipLoader, 'clip'>, request: typeof getExperiment = getExperiment) {
    this.latest = new LatestEpisode(clips)
    const updated = (summary: ExperimentSummary) => this.#update(summary)
    this.feed = new Feed<ExperimentSummary>({ name, request: () => request(name), received: updated, updated })
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
    if (summary.latest_episode === null) return
    void this.latest.show(summary.latest_episode).then(() => (this.shown ??= this.latest.current))
  }
}
