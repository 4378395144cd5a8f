/** Renewal of leases: comparisons held by this page are not given to other labelers. */

import type { LeaseRenewal } from './api-types'

const RENEW_MS = 60_000
/** After a longer gap, for example when a phone was asleep, renew as soon as the page is visible. */
const LATE_MS = 75_000

export interface LeasesOptions {
  held: () => readonly string[]
  renew: (leases: readonly string[]) => Promise<LeaseRenewal>
  release: (leases: readonly string[]) => Promise<void>
  lost: (leases: ReadonlySet<string>) => void
  now_ms?: () => number
}

export class Leases {
  #timer: ReturnType<typeof setInterval> | undefined
  #renewed_ms: number
  readonly #now_ms: () => number

  constructor(private readonly options: LeasesOptions) {
    this.#now_ms = options.now_ms ?? (() => Date.now())
    this.#renewed_ms = this.#now_ms()
  }

  start(): void {
    this.#timer = setInterval(() => void this.renew(), RENEW_MS)
    globalThis.addEventListener?.('pagehide', this.#release)
    globalThis.addEventListener?.('pageshow', this.#handlePageShow)
    globalThis.document?.addEventListener('visibilitychange', this.#handleVisibility)
  }

  /** Stop renewing and release the leases that are still held. */
  stop(): void {
    clearInterval(this.#timer)
    globalThis.removeEventListener?.('pagehide', this.#release)
    globalThis.removeEventListener?.('pageshow', this.#handlePageShow)
    globalThis.document?.removeEventListener('visibilitychange', this.#handleVisibility)
    this.#release()
  }

  /** Renew the leases that are held and report those that were lost. */
  async renew(): Promise<void> {
    this.#renewed_ms = this.#now_ms()
    const held = this.options.held()
    if (held.length === 0) return
    try {
      const { lost } = await this.options.renew(held)
      if (lost.length > 0) this.options.lost(new Set(lost))
    } catch {
      // The queue and the outbox report an unreachable service; the next renewal tries again.
    }
  }

  #release = (): void => {
    const held = this.options.held()
    if (held.length > 0) this.options.release(held).catch(() => undefined)
  }

  #handlePageShow = (event: PageTransitionEvent): void => {
    if (event.persisted) void this.renew()
  }

  #handleVisibility = (): void => {
    if (!document.hidden && this.#now_ms() - this.#renewed_ms > LATE_MS) void this.renew()
  }
}
