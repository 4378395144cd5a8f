/** Comparisons that are loaded ahead of the one on screen. */

import { isBroken, type ClipLoader, type LoadedComparison } from './clips'
import type { Comparison } from './api-types'

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
  /** The queue was filled, or the service has no more. */
  onfilled: () => void
  onfailed: (error: unknown) => void
}

export class ComparisonQueue {
  items = $state.raw<readonly LoadedComparison[]>([])
  isFilling = $state(false)
  /** Comparisons that were fetched and whose clips are being loaded. */
  loading: readonly Comparison[] = []
  #isStopped = false
  #mustFillAgain = false
  #brokenIds = new Set<number>()

  constructor(private readonly options: QueueOptions) {}

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

  /** Fetch nothing more, queue nothing more and report nothing more. */
  stop(): void {
    this.#isStopped = true
  }

  /** Fetch and load comparisons until enough are ready. Never rejects. */
  async fill(): Promise<void> {
    if (this.#isStopped) return
    this.#mustFillAgain = this.isFilling
    if (this.isFilling) return
    this.isFilling = true
    try {
      while (await this.#fillOnce());
      if (!this.#isStopped) this.options.onfilled()
    } catch (error) {
      if (!this.#isStopped) this.options.onfailed(error)
    } finally {
      this.isFilling = false
      this.loading = []
    }
    if (this.#mustFillAgain) void this.fill()
  }

  /** @returns whether there is room for more and the service may have more. */
  async #fillOnce(): Promise<boolean> {
    const missing = this.options.numAhead() - this.items.length + (this.options.isShowing() ? 0 : 1)
    if (missing <= 0) return false
    const comparisons = await this.options.fetch(missing, this.#knownIds())
    const known = this.#knownIds()
    const fresh = comparisons.filter(({ id }) => !known.has(id))
    this.loading = fresh
    const loads = fresh.map((comparison) => this.#load(comparison))
    // The first failure ends the loop below; mark the others as handled.
    for (const ready of loads) ready.catch(() => undefined)
    // Load in parallel, but queue in the service's order.
    for (const load of loads) {
      const ready = await load
      if (this.#isStopped) return false
      this.loading = this.loading.slice(1)
      this.#enqueue(ready)
    }
    return fresh.length > 0
  }

  async #load(comparison: Comparison): Promise<LoadedComparison | null> {
    try {
      return await this.options.clips.comparison(comparison)
    } catch (error) {
      if (this.#isStopped || !isBroken(error)) throw error
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
