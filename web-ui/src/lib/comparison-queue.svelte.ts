/** Comparisons that are loaded ahead of the one on screen. */

import { isBroken, type ClipLoader, type LoadedComparison } from './clips'
import { RequestRejected } from './api'
import type { Comparison } from './api-types'
import { Resource } from './resource.svelte'

const RETRY_BROKEN_MS = 30_000

export interface QueueOptions {
  /** Lease up to `limit` comparisons, excluding some ids. */
  fetch: (limit: number, exclude: ReadonlySet<number>) => Promise<Comparison[]>
  clips: Pick<ClipLoader, 'comparison'>
  /** Comparisons to keep ready behind the one on screen. */
  numAhead: () => number
  /** Whether a comparison is on screen. */
  isShowing: () => boolean
  /** Comparisons that must not be queued: on screen, or labelled already. */
  excludedIds: () => Iterable<number>
  /** A comparison was queued. */
  onready: () => void
  /** A comparison was skipped because its clips cannot be displayed. */
  onskip: (comparison: Comparison, error: unknown) => void
  /** The queue was refilled: it is full, or the service has no further comparisons. */
  onfilled: () => void
}

export class ComparisonQueue {
  items = $state.raw<readonly LoadedComparison[]>([])
  /** Comparisons that were fetched and whose clips are being loaded. */
  loading: readonly Comparison[] = []
  readonly supply: Resource<void>
  #brokenIds = new Set<number>()

  constructor(private readonly options: QueueOptions) {
    this.supply = new Resource(() => this.#fill(), {
      received: options.onfilled,
      retries: (error) => !(error instanceof RequestRejected),
    })
  }

  /** Remove and return the first comparison. */
  take(): LoadedComparison | null {
    const [first = null, ...rest] = this.items
    this.items = rest
    return first
  }

  /** Put comparisons back at the front. */
  putBack(...ready: readonly LoadedComparison[]): void {
    this.items = [...ready, ...this.items]
  }

  /** Drop comparisons; return whether there were any. */
  drop(isDropped: (comparison: Comparison) => boolean): boolean {
    const before = this.items.length
    this.items = this.items.filter(({ comparison }) => !isDropped(comparison))
    return this.items.length < before
  }

  /** Fetch and load comparisons until enough are ready. Never rejects. */
  async fill(): Promise<void> {
    if (this.#numMissing > 0) await this.supply.read()
  }

  get #numMissing(): number {
    return this.options.numAhead() - this.items.length + (this.options.isShowing() ? 0 : 1)
  }

  async #fill(): Promise<void> {
    // Without a request, whatever the last one met remains.
    if (this.#numMissing <= 0 && this.supply.failure !== null) throw this.supply.failure
    try {
      while (await this.#fillOnce());
    } finally {
      this.loading = []
    }
  }

  /** @returns whether there is room for more and the service may have more. */
  async #fillOnce(): Promise<boolean> {
    if (this.#numMissing <= 0) return false
    const comparisons = await this.options.fetch(this.#numMissing, this.#knownIds())
    const known = this.#knownIds()
    const fresh = comparisons.filter(({ id }) => !known.has(id))
    this.loading = fresh
    const loads = fresh.map((comparison) => this.#load(comparison))
    // The first failure ends the loop below; mark the others as handled.
    for (const ready of loads) ready.catch(() => undefined)
    // Load in parallel, but queue in the service's order.
    for (const load of loads) {
      const ready = await load
      if (this.supply.isStopped) return false
      this.loading = this.loading.slice(1)
      this.#enqueue(ready)
    }
    return fresh.length > 0
  }

  async #load(comparison: Comparison): Promise<LoadedComparison | null> {
    try {
      return await this.options.clips.comparison(comparison)
    } catch (error) {
      if (this.supply.isStopped || !isBroken(error)) throw error
      this.#brokenIds.add(comparison.id)
      // The trainer renders missing clips again.
      setTimeout(() => this.#brokenIds.delete(comparison.id), RETRY_BROKEN_MS)
      this.options.onskip(comparison, error)
      return null
    }
  }

  #enqueue(ready: LoadedComparison | null): void {
    if (ready === null || this.#knownIds().has(ready.comparison.id)) return
    this.items = [...this.items, ready]
    this.options.onready()
  }

  #knownIds(): Set<number> {
    const queued = this.items.map(({ comparison }) => comparison.id)
    return new Set([...this.options.excludedIds(), ...queued, ...this.#brokenIds])
  }
}
