/** State of the play page: the session and its episodes. */

import { RequestRejected } from './api'
import type { PlayedEpisode, PlaySession } from './api-types'
import { clipLoader, type ClipGroup } from './clips'
import { getEpisode, getPlaySession } from './play-api'
import { Resource } from './resource.svelte'

export interface LoadedEpisode {
  episode: PlayedEpisode
  clips: ClipGroup
}

export class PlayState {
  /** The episode on screen. */
  current = $state.raw<LoadedEpisode | null>(null)
  /** The episode that follows, once it is loaded. */
  next = $state.raw<LoadedEpisode | null>(null)
  /** The episodes that are loaded, by number. */
  episodes = $state.raw<Record<number, PlayedEpisode>>({})
  /** Number of the episode that was selected last; it may still be loading. */
  selected = $state(0)
  readonly #session: Resource<PlaySession>
  readonly #chosen = new Resource(() => this.#load(this.selected), {
    received: (loaded) => loaded.episode.number === this.selected && this.#show(loaded),
  })
  readonly #following = new Resource(() => this.#load(this.#numberAfter), {
    received: (loaded) => {
      if (loaded.episode.number === this.#numberAfter) this.next = loaded
    },
  })

  /** @param number of the episode to begin with; the first one if there is no such. */
  constructor(number = 0) {
    this.#session = new Resource(getPlaySession, {
      received: ({ num_episodes }) => {
        const isEpisode = Number.isInteger(number) && number > 0 && number < num_episodes
        this.selected = isEpisode ? number : 0
        void this.#chosen.read()
      },
    })
  }

  start(): () => void {
    const stops = [this.#session.start(), () => this.#chosen.stop(), () => this.#following.stop()]
    return () => stops.forEach((stop) => stop())
  }

  get session(): PlaySession | null {
    return this.#session.value
  }

  get numEpisodes(): number {
    return this.session?.num_episodes ?? 0
  }

  get failure(): unknown {
    return this.#session.failure ?? this.#chosen.failure ?? this.#following.failure
  }

  /** Whether the service runs without `rl-teacher play`. */
  get isNotPlaying(): boolean {
    return this.failure instanceof RequestRejected && this.failure.problem.status === 404
  }

  /** Send a request that failed again now. */
  retry(): void {
    void this.#session.read()
  }

  /** Show an episode; numbers wrap around. */
  async select(wanted: number): Promise<void> {
    this.selected = (wanted + this.numEpisodes) % this.numEpisodes
    if (this.next?.episode.number === this.selected) return this.#show(this.next)
    await this.#chosen.read()
    if (this.#chosen.failure instanceof RequestRejected) {
      this.selected = this.current?.episode.number ?? this.selected
    }
  }

  /** Show the episode that follows; the current one repeats until it, or the selected one, is loaded. */
  showNext(): void {
    const isAwaiting = this.current?.episode.number !== this.selected
    if (this.next !== null && this.numEpisodes > 1 && !isAwaiting) this.#show(this.next)
  }

  get #numberAfter(): number {
    return ((this.current?.episode.number ?? 0) + 1) % this.numEpisodes
  }

  #show(loaded: LoadedEpisode): void {
    this.current = loaded
    this.selected = loaded.episode.number
    this.next = null
    void this.#following.read()
  }

  async #load(number: number): Promise<LoadedEpisode> {
    const episode = await getEpisode(number)
    const sides = await Promise.all(episode.sides.map(({ clip }) => clipLoader.clip(clip)))
    this.episodes = { ...this.episodes, [number]: episode }
    return { episode, clips: { key: `episode ${number}`, sides } }
  }
}
