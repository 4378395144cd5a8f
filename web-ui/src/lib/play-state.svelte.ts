/** State of the play page: the session and its episodes. */

import { RequestRejected, ServerUnreachable } from './api'
import type { PlayedEpisode, PlaySession } from './api-types'
import { clipLoader, type ClipGroup } from './clips'
import { getEpisode, getPlaySession } from './play-api'
import { RETRY_MS } from './retry-timer'

export interface LoadedEpisode {
  episode: PlayedEpisode
  clips: ClipGroup
}

export class PlayState {
  session = $state.raw<PlaySession | null>(null)
  failure = $state.raw<unknown>(null)
  /** The episode on screen. */
  current = $state.raw<LoadedEpisode | null>(null)
  /** The episode that follows, once it is loaded. */
  next = $state.raw<LoadedEpisode | null>(null)
  /** The episodes that are loaded, by number. */
  episodes = $state.raw<Record<number, PlayedEpisode>>({})
  /** Number of the episode that was selected last; it may still be loading. */
  selected = $state(0)
  #isStopped = false
  /** Ends the pause before a request is sent again. */
  #wake: () => void = () => undefined

  get numEpisodes(): number {
    return this.session?.num_episodes ?? 0
  }

  /** Whether the service runs without `rl-teacher play`. */
  get isNotPlaying(): boolean {
    return this.failure instanceof RequestRejected && this.failure.problem.status === 404
  }

  /** @param number of the episode to begin with; the first one if there is no such. */
  async start(number = 0): Promise<void> {
    this.session = await this.#retrying(getPlaySession)
    if (this.session === null) return
    const isEpisode = Number.isInteger(number) && number > 0 && number < this.numEpisodes
    const first = await this.#load(isEpisode ? number : 0)
    if (first !== null) this.#show(first)
  }

  stop(): void {
    this.#isStopped = true
  }

  /** Send a request that failed again now. */
  retry(): void {
    this.#wake()
  }

  /** Show an episode; numbers wrap around. */
  async select(wanted: number): Promise<void> {
    const number = (wanted + this.numEpisodes) % this.numEpisodes
    this.selected = number
    if (this.next?.episode.number === number) return this.#show(this.next)
    const loaded = await this.#load(number)
    if (this.selected !== number) return
    if (loaded !== null) this.#show(loaded)
    else this.selected = this.current?.episode.number ?? number
  }

  /** Show the episode that follows; the current one repeats until it, or the selected one, is loaded. */
  showNext(): void {
    const isAwaiting = this.current?.episode.number !== this.selected
    if (this.next !== null && this.numEpisodes > 1 && !isAwaiting) this.#show(this.next)
  }

  #show(loaded: LoadedEpisode): void {
    this.current = loaded
    this.selected = loaded.episode.number
    this.next = null
    void this.#preloadAfter(loaded.episode.number)
  }

  async #preloadAfter(number: number): Promise<void> {
    const following = await this.#load((number + 1) % this.numEpisodes)
    if (this.current?.episode.number === number) this.next = following
  }

  #load(number: number): Promise<LoadedEpisode | null> {
    return this.#retrying(async () => {
      const episode = await getEpisode(number)
      const sides = await Promise.all(episode.sides.map(({ clip }) => clipLoader.clip(clip)))
      this.episodes = { ...this.episodes, [number]: episode }
      return { episode, clips: { key: `episode ${number}`, sides } }
    })
  }

  /** Retry while the server is unreachable; return null if it rejects the request. */
  async #retrying<T>(fetch: () => Promise<T>): Promise<T | null> {
    while (!this.#isStopped) {
      try {
        const result = await fetch()
        this.failure = null
        return result
      } catch (error) {
        this.failure = error
        if (!(error instanceof ServerUnreachable)) return null
        await new Promise<void>((resolve) => {
          this.#wake = resolve
          setTimeout(resolve, RETRY_MS)
        })
      }
    }
    return null
  }
}
