/** An episode of the agent, the latest or the first, loaded for display. */

import type { ClipLoader, LoadedClip } from './clips'
import type { Episode } from './api-types'

export interface LoadedEpisode {
  episode: Episode
  loaded: LoadedClip
}

export class LatestEpisode {
  current = $state.raw<LoadedEpisode | null>(null)
  /** Why the clip of the requested episode could not be loaded. */
  failure = $state.raw<unknown>(null)
  #wantedHash = ''

  constructor(private readonly clips: Pick<ClipLoader, 'clip'>) {}

  /** Load an episode and replace the current one, unless a newer one was requested meanwhile. */
  async show(episode: Episode): Promise<void> {
    const { hash } = episode.clip
    if (hash === this.#wantedHash) return
    this.#wantedHash = hash
    try {
      const loaded = await this.clips.clip(episode.clip)
      if (this.#wantedHash !== hash) return
      this.current = { episode, loaded }
      this.failure = null
    } catch (error) {
      // The episode stays optional: the next announcement of it tries again.
      if (this.#wantedHash !== hash) return
      this.#wantedHash = ''
      this.failure = error
    }
  }
}
