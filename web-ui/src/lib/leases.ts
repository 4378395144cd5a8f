/** Keeps what was given to answer from being given to others, for as long as it is at hand here. */

import type { Renewal } from './types'

const BEAT_MS = 60_000
/** After so long without a beat, as when a phone was asleep, the next one comes at once. */
const LATE_MS = 75_000

export interface LeasesOptions {
  held: () => readonly string[]
  renew: (leases: readonly string[]) => Promise<Renewal>
  release: (leases: readonly string[]) => Promise<void>
  lost: (leases: ReadonlySet<string>) => void
  now_ms?: () => number
}

export class Leases {
  #timer: ReturnType<typeof setInterval> | undefined
  #beaten_ms: number
  readonly #now_ms: () => number

  constructor(private readonly options: LeasesOptions) {
    this.#now_ms = options.now_ms ?? (() => Date.now())
    this.#beaten_ms = this.#now_ms()
  }

  start(): void {
    this.#timer = setInterval(() => void this.beat(), BEAT_MS)
    globalThis.addEventListener?.('pagehide', this.#leave)
    globalThis.addEventListener?.('pageshow', this.#comeBack)
    globalThis.document?.addEventListener('visibilitychange', this.#look)
  }

  /** Ends it, and gives back what is still at hand. */
  stop(): void {
    clearInterval(this.#timer)
    globalThis.removeEventListener?.('pagehide', this.#leave)
    globalThis.removeEventListener?.('pageshow', this.#comeBack)
    globalThis.document?.removeEventListener('visibilitychange', this.#look)
    this.#leave()
  }

  /** Renews what is at hand, and tells what meanwhile went to others. */
  async beat(): Promise<void> {
    this.#beaten_ms = this.#now_ms()
    const held = this.options.held()
    if (held.length === 0) return
    try {
      const { lost } = await this.options.renew(held)
      if (lost.length > 0) this.options.lost(new Set(lost))
    } catch {
      // Note: whoever fetches and sends says already that the service is away; the next beat comes.
    }
  }

  #leave = (): void => {
    const held = this.options.held()
    if (held.length > 0) this.options.release(held).catch(() => undefined)
  }

  #comeBack = (event: PageTransitionEvent): void => {
    if (event.persisted) void this.beat()
  }

  #look = (): void => {
    if (!document.hidden && this.#now_ms() - this.#beaten_ms > LATE_MS) void this.beat()
  }
}
