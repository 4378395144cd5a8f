/** An episode of the agent, the latest or the first, loaded for display. */

import type { ClipLoader, LoadedClip } from './clips'
import type { Episode } from './api-types'
import { Resource } from './resource.svelte'

export interface LoadedEpisode {
  episode: Episode
  loaded: LoadedClip
}

export class LatestEpisode {
  #wanted: Episode | null = null
  readonly #resource: Resource<LoadedEpisode>

  constructor(clips: Pick<ClipLoader, 'clip'>) {
    this.#resource = new Resource(async () => {
      const episode = this.#wanted!
      return { episode, loaded: await clips.clip(episode.clip) }
    })
  }

  get current(): LoadedEpisode | null {
    return this.#resource.value
  }

  /** Why the clip of the requested episode could not be loaded. */
  get failure(): unknown {
    return this.#resource.failure
  }

  /** Load an episode and replace the current one; again after a failure. */
  async show(episode: Episode): Promise<void> {
    if (episode.clip.hash === this.#wanted?.clip.hash && this.failure === null) return
    this.#wanted = episode
    await this.#resource.read()
  }
}
