/** State of the labelling page: shows comparisons, records labels and delivers every one of them. */

import * as api from './api'
import { RequestRejected, SignedOut } from './api'
import { ClipLoader, type LoadedComparison } from './clips'
import { ComparisonQueue } from './comparison-queue.svelte'
import { listen } from './events'
import { errorText } from './format'
import { answerTo, remember, restore, takeBack, type History } from './history'
import { LatestEpisode } from './latest-episode.svelte'
import { Leases } from './leases'
import { newRequestId, Outbox, type Delivery } from './outbox'
import { LabellingProgress } from './progress.svelte'
import type { Answer, Comparison, ExperimentSummary, LabelSubmission, Progress } from './api-types'

const RETRY_MS = 3_000
/** Interval of checks whether comparisons leased to others have become free. */
const RECHECK_MS = 10_000
/** Labels to exclude when fetching, in case the service has not processed them yet. */
const NUM_RECENT_IDS = 12

export type Connection = Delivery

/** Returns details to record with a label, such as the playback speed. */
export type LabelDetails = () => Record<string, unknown>

export type Service = Pick<
  typeof api,
  | 'getNext'
  | 'getComparison'
  | 'getMyLabels'
  | 'getExperiment'
  | 'postLabels'
  | 'renewLeases'
  | 'releaseLeases'
> & { listen: typeof listen }

export interface LabellingOptions {
  service?: Service
  clips?: Pick<ClipLoader, 'comparison' | 'clip'>
  database?: IDBFactory
  now_ms?: () => number
}

export class LabellingSession {
  /** The comparison on screen. */
  current = $state.raw<LoadedComparison | null>(null)
  /** Whether the comparison on screen was reopened from the recent labels. */
  isReviewing = $state(false)
  isOpening = $state(false)
  history = $state.raw<History>([])
  summary = $state.raw<ExperimentSummary | null>(null)
  connection = $state<Connection>('ok')
  /** The last error that does not resolve by itself. */
  notice = $state('')
  unsentIds = $state.raw<ReadonlySet<number>>(new Set())
  numUnsent = $state(0)
  /** Why the page cannot start at all. */
  failure = $state.raw<unknown>(null)
  readonly progress = new LabellingProgress()
  readonly queue: ComparisonQueue
  readonly latestEpisode: LatestEpisode

  #hasFetched = $state(false)
  /** The service had nothing for this labeler when it was last asked. */
  #isExhausted = $state(false)
  #outbox: Outbox | null = null
  #labelledIds = new Set<number>()
  #shown_ms = 0
  #hasHistory = false
  #retryTimer: ReturnType<typeof setTimeout> | undefined
  #stopListening: (() => void) | null = null
  readonly #leases: Leases
  readonly #service: Service
  readonly #clips: Pick<ClipLoader, 'comparison' | 'clip'>
  readonly #now_ms: () => number

  constructor(
    readonly name: string,
    readonly details: LabelDetails = () => ({}),
    private readonly options: LabellingOptions = {},
  ) {
    const service = options.service ?? { ...api, listen }
    this.#service = service
    this.#clips = options.clips ?? new ClipLoader()
    this.#now_ms = options.now_ms ?? (() => performance.now())
    this.latestEpisode = new LatestEpisode(this.#clips)
    this.queue = new ComparisonQueue({
      fetch: (limit, exclude) => this.#fetchNext(limit, exclude),
      clips: this.#clips,
      isShowing: () => this.current !== null,
      excludedIds: () => this.#excludedIds(),
      onready: () => this.current === null && !this.isOpening && this.#showNext(),
      onskip: ({ number }, error) => (this.notice = `Comparison ${number} was skipped: ${errorText(error)}`),
      onfilled: () => this.#handleFilled(),
      onfailed: (error) => this.#handleFailed(error),
    })
    this.#leases = new Leases({
      held: () => this.#leased().flatMap(({ comparison }) => comparison.lease ?? []),
      renew: (leases) => service.renewLeases(leases),
      release: (leases) => service.releaseLeases(leases),
      lost: (leases) => this.#dropLeases(leases),
    })
  }

  /** Whether there is nothing to label, as far as is known. */
  get isIdle(): boolean {
    const isFetching = this.queue.isFilling && this.progress.numWaiting > 0 && !this.#isExhausted
    return this.current === null && this.#hasFetched && !this.isOpening && !isFetching
  }

  /** Whether the remaining comparisons are leased to others or labelled by this labeler. */
  get isHeldByOthers(): boolean {
    return this.#isExhausted && this.progress.numWaiting > 0
  }

  get hasFetched(): boolean {
    return this.#hasFetched
  }

  async start(): Promise<void> {
    this.#outbox = await Outbox.open({
      send: (labels) => this.#service.postLabels(labels),
      changed: () => this.#followOutbox(),
      accepted: (labels) =>
        this.progress.acknowledge(labels.reduce((sum, one) => sum + one.change, 0)),
      rejected: (one, problem, stored) => {
        if (stored !== null) this.history = remember(this.history, one.comparison, stored)
        this.notice = `The label of comparison ${one.comparison.number} was rejected: ${problem.detail}`
      },
      warned: (warning) => (this.notice = warning),
      database: this.options.database,
    })
    this.#followOutbox()
    await Promise.all([this.#readSummary(), this.#readHistory(), this.queue.fill()])
    this.#stopListening = this.#service.listen(this.name, {
      progress: (progress) => this.#followProgress(progress),
      experiment: (summary) => this.#followSummary(summary),
      episode: (episode) => void this.latestEpisode.show(episode),
      live: (isLive) => isLive && this.retry(),
      poll: () => this.retry(),
    })
    this.#leases.start()
  }

  stop(): void {
    clearTimeout(this.#retryTimer)
    this.#stopListening?.()
    this.#leases.stop()
    this.#outbox?.close()
  }

  /** Retry everything that waits for the network. */
  retry(): void {
    void this.#outbox?.flush()
    void this.queue.fill()
    if (this.summary === null || this.current === null) void this.#readSummary()
    if (!this.#hasHistory) void this.#readHistory()
  }

  // --- labels ---

  answer(answer: Answer): void {
    if (this.current === null || this.isOpening) return
    const { comparison } = this.current
    const isNew = answerTo(this.history, comparison.id) === null && comparison.answer === null
    this.#send(comparison, answer, isNew ? 1 : 0)
    this.history = remember(this.history, withoutLease(comparison), answer)
    this.#labelledIds.add(comparison.id)
    this.progress.recordLabel(this.#now_ms())
    this.isReviewing = false
    this.#showNext()
  }

  /** Withdraw the newest label and show its comparison again. */
  undo(): void {
    const { history, taken } = takeBack(this.history)
    if (taken === null || this.isOpening) return
    const comparison = { ...taken.comparison, answer: null }
    this.history = history
    this.#labelledIds.delete(comparison.id)
    this.#send(comparison, null, -1)
    if (this.current?.comparison.id === comparison.id) {
      this.isReviewing = false
      this.#show({ ...this.current, comparison })
      return
    }
    void this.#open(comparison, false)
  }

  /** Show a labelled comparison again; answering it replaces the label. */
  review(comparison: Comparison): void {
    if (comparison.id !== this.current?.comparison.id) void this.#open(comparison, true)
  }

  /** Show the comparison that a link names, labelled or not. */
  async openById(id: number): Promise<void> {
    try {
      const comparison = await this.#service.getComparison(id)
      if (comparison.id === this.current?.comparison.id) return
      this.queue.drop((queued) => queued.id === id)
      await this.#open(comparison, comparison.answer !== null)
    } catch (error) {
      this.notice = `This comparison cannot be shown: ${errorText(error)}`
    }
  }

  /** Close a reopened comparison without changing its label. */
  leaveReview(): void {
    if (!this.isReviewing) return
    this.isReviewing = false
    this.#showNext()
  }

  async #open(comparison: Comparison, isReviewing: boolean): Promise<void> {
    if (this.isOpening) return
    this.isOpening = true
    try {
      const loaded = await this.#clips.comparison(comparison)
      if (this.current !== null && !this.isReviewing) this.queue.putBack(this.current)
      this.isReviewing = isReviewing
      this.#show(loaded)
    } catch (error) {
      this.notice = `Comparison ${comparison.number} cannot be shown: ${errorText(error)}`
    } finally {
      this.isOpening = false
    }
  }

  /** Queue a label for delivery; answer null withdraws the current one. */
  #send(comparison: Comparison, answer: Answer | null, change: number): void {
    const label: LabelSubmission = {
      request_id: newRequestId(),
      comparison_id: comparison.id,
      answer,
      lease: answer === null ? null : (comparison.lease ?? null),
      left_hash: comparison.left.hash,
      response_ms: answer === null ? null : Math.round(this.#now_ms() - this.#shown_ms),
      details: answer === null ? null : this.details(),
    }
    const answered_at = new Date().toISOString()
    const answered: Comparison = { ...withoutLease(comparison), answer }
    void this.#outbox?.add({ label, comparison: answered, change, answered_at })
  }

  #showNext(): void {
    this.#show(this.queue.take())
    void this.queue.fill()
  }

  #show(loaded: LoadedComparison | null): void {
    this.current = loaded
    this.#shown_ms = this.#now_ms()
    if (loaded === null && this.latestEpisode.current === null) void this.#readSummary()
  }

  // --- queue and leases ---

  async #fetchNext(limit: number, exclude: ReadonlySet<number>): Promise<Comparison[]> {
    const { comparisons, progress } = await this.#service.getNext(this.name, limit, exclude)
    this.progress.update(progress)
    this.#hasFetched = true
    return comparisons
  }

  #excludedIds(): number[] {
    const unsent = this.#outbox?.unsent.filter(({ label }) => label.answer !== null) ?? []
    return [
      ...(this.current === null ? [] : [this.current.comparison.id]),
      ...unsent.map(({ comparison }) => comparison.id),
      ...[...this.#labelledIds].slice(-NUM_RECENT_IDS),
    ]
  }

  #handleFilled(): void {
    if (this.connection !== 'ok') {
      this.connection = 'ok'
      void this.#outbox?.flush()
      if (this.summary === null) void this.#readSummary()
    }
    this.#isExhausted = this.current === null && !this.isOpening
    if (!this.isHeldByOthers) return
    // The service does not announce the end of another labeler's lease.
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => void this.queue.fill(), RECHECK_MS)
  }

  #handleFailed(error: unknown): void {
    if (error instanceof RequestRejected) {
      this.failure = error
      return
    }
    this.connection = error instanceof SignedOut ? 'signed out' : 'offline'
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => this.retry(), RETRY_MS)
  }

  /** Comparisons that are leased to this page. */
  #leased(): readonly LoadedComparison[] {
    const { items } = this.queue
    return this.current === null || this.isReviewing ? items : [this.current, ...items]
  }

  /** Drop comparisons whose leases ended; the one on screen stays, since its label still counts. */
  #dropLeases(leases: ReadonlySet<string>): void {
    if (this.queue.drop(({ lease }) => leases.has(lease ?? ''))) void this.queue.fill()
  }

  // --- state of the service ---

  async #readSummary(): Promise<void> {
    try {
      this.#followSummary(await this.#service.getExperiment(this.name))
      this.failure = null
    } catch (error) {
      if (this.summary === null) this.failure = error
    }
  }

  async #readHistory(): Promise<void> {
    const unsent = this.#ownUnsent()
    try {
      const labels = await this.#service.getMyLabels(this.name)
      const oldestFirst = labels.map(({ comparison }) => comparison).reverse()
      // Labels given while the request was under way come last.
      this.history = this.history.reduce(
        (history, { comparison, answer }) => remember(history, comparison, answer),
        restore(oldestFirst, unsent),
      )
      this.#hasHistory = true
    } catch {
      if (this.history.length === 0) this.history = restore([], unsent)
    }
  }

  #followSummary(summary: ExperimentSummary): void {
    this.summary = summary
    this.#followProgress(summary.progress)
    if (summary.latest_episode !== null) void this.latestEpisode.show(summary.latest_episode)
  }

  #followProgress(progress: Progress): void {
    this.progress.update(progress)
    if (progress.waiting > 0) void this.queue.fill()
  }

  #ownUnsent() {
    const unsent = this.#outbox?.unsent ?? []
    return unsent.filter(({ comparison }) => comparison.experiment === this.name)
  }

  #followOutbox(): void {
    const unsent = this.#ownUnsent()
    this.numUnsent = this.#outbox?.length ?? 0
    this.unsentIds = new Set(unsent.map(({ comparison }) => comparison.id))
    this.progress.unsentChange = unsent.reduce((sum, { change }) => sum + change, 0)
    if (this.#outbox === null) return
    if (this.numUnsent > 0 || this.#outbox.delivery === 'ok') this.connection = this.#outbox.delivery
  }
}

const withoutLease = (comparison: Comparison): Comparison => ({ ...comparison, lease: null })
