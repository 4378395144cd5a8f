/** Renewal of leases: comparisons held by this page are not given to other labelers. */

import type { LeaseRenewal } from './api-types'
import { Resource } from './resource.svelte'

const RENEW_MS = 60_000

export interface LeasesOptions {
  held: () => readonly string[]
  renew: (leases: readonly string[]) => Promise<LeaseRenewal>
  release: (leases: readonly string[]) => Promise<void>
  lost: (leases: ReadonlySet<string>) => void
}

export class Leases {
  readonly #renewal: Resource<LeaseRenewal | null>

  constructor(private readonly options: LeasesOptions) {
    const { held, renew, lost } = options
    this.#renewal = new Resource(async () => (held().length > 0 ? renew(held()) : null), {
      received: (renewal) => renewal !== null && renewal.lost.length > 0 && lost(new Set(renewal.lost)),
      refresh_ms: RENEW_MS,
      isInBackground: true,
    })
  }

  start(): void {
    this.#renewal.schedule(RENEW_MS)
    globalThis.addEventListener?.('pagehide', this.#release)
    globalThis.addEventListener?.('pageshow', this.#handlePageShow)
  }

  /** Stop renewing and release the leases that are still held. */
  stop(): void {
    this.#renewal.stop()
    globalThis.removeEventListener?.('pagehide', this.#release)
    globalThis.removeEventListener?.('pageshow', this.#handlePageShow)
    this.#release()
  }

  #release = (): void => {
    const held = this.options.held()
    if (held.length > 0) this.options.release(held).catch(() => undefined)
  }

  #handlePageShow = (event: PageTransitionEvent): void => {
    if (event.persisted) void this.#renewal.read()
  }
}
