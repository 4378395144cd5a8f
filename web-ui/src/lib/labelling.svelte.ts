/** State of the labelling page: shows comparisons, records labels and delivers every one of them. */

import * as api from './api'
import { RequestRejected } from './api'
import { ClipLoader, type LoadedComparison } from './clips'
import { ComparisonQueue } from './comparison-queue.svelte'
import { listen } from './events'
import { errorText } from './format'
import { GivenLabels } from './given-labels.svelte'
import { hideAsked, LabelEffects } from './label-effect.svelte'
import { LatestEpisode } from './latest-episode.svelte'
import { Leases } from './leases'
import { LabellingProgress, secondsToNext } from './progress.svelte'
import { hasStartedTraining } from './status'
import type { Answer, Comparison, ExperimentSummary, LabelEffect, Progress } from './api-types'

const RETRY_MS = 3_000
/** How long the page announces that training starts. */
const START_NOTICE_MS = 8_000
/** Interval of checks whether comparisons leased to others have become free. */
const RECHECK_MS = 10_000

/** Returns details to record with a label, such as the playback speed. */
export type LabelDetails = () => Record<string, unknown>

export type Service = Pick<
  typeof api,
  | 'getNext'
  | 'getComparison'
  | 'getMyLabels'
  | 'getExperiment'
  | 'getLabelEffect'
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
  /** The comparison that was on screen before there was nothing to label. */
  previous = $state.raw<LoadedComparison | null>(null)
  /** Whether the comparison on screen was reopened from the recent labels. */
  isReviewing = $state(false)
  isOpening = $state(false)
  summary = $state.raw<ExperimentSummary | null>(null)
  /** Whether training has started for the first time just now. */
  isTrainingStarting = $state(false)
  /** The last error that does not resolve by itself. */
  notice = $state('')
  /** Why the page cannot start at all. */
  failure = $state.raw<unknown>(null)
  readonly progress = new LabellingProgress()
  readonly labels: GivenLabels
  readonly queue: ComparisonQueue
  readonly latestEpisode: LatestEpisode
  readonly effects: LabelEffects
  readonly clips: Pick<ClipLoader, 'comparison' | 'clip'>

  #hasFetched = $state(false)
  /** The service had nothing for this labeler when it was last asked. */
  #isExhausted = $state(false)
  #shown_ms = 0
  /** The step of training at which the number of comparisons last changed. */
  #lastAskedStep = 0
  #retryTimer: ReturnType<typeof setTimeout> | undefined
  #startTimer: ReturnType<typeof setTimeout> | undefined
  #stopListening: (() => void) | null = null
  readonly #leases: Leases
  readonly #service: Service
  readonly #now_ms: () => number

  constructor(
    readonly name: string,
    readonly details: LabelDetails = () => ({}),
    options: LabellingOptions = {},
  ) {
    const service = options.service ?? { ...api, listen }
    this.#service = service
    this.clips = options.clips ?? new ClipLoader()
    this.#now_ms = options.now_ms ?? (() => performance.now())
    this.latestEpisode = new LatestEpisode(this.clips)
    this.effects = new LabelEffects(name, service)
    this.labels = new GivenLabels({
      name,
      service,
      progress: this.progress,
      onnotice: (message) => (this.notice = message),
      database: options.database,
      now_ms: this.#now_ms,
    })
    this.queue = new ComparisonQueue({
      fetch: (limit, exclude) => this.#fetchNext(limit, exclude),
      clips: this.clips,
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

  /** Estimated time until the next comparison, or null if it cannot be estimated. */
  get secondsToNext(): number | null {
    return this.summary === null ? null : secondsToNext(this.summary, this.#lastAskedStep)
  }

  /** The effect of the labels so far, without clips that are asked about; null if there is none. */
  get effect(): LabelEffect | null {
    const { latest } = this.effects
    if (latest === null) return null
    const asked = this.#leased().map(({ comparison }) => comparison)
    return hideAsked(latest, asked, this.labels.history)
  }

  get hasFetched(): boolean {
    return this.#hasFetched
  }

  async start(): Promise<void> {
    await this.labels.open()
    await Promise.all([this.#readSummary(), this.labels.readHistory(), this.queue.fill()])
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
    clearTimeout(this.#startTimer)
    this.#stopListening?.()
    this.#leases.stop()
    this.labels.close()
  }

  /** Retry everything that waits for the network. */
  retry(): void {
    this.labels.retry()
    void this.queue.fill()
    if (this.summary === null || this.current === null) void this.#readSummary()
  }

  // --- labels ---

  answer(answer: Answer): void {
    if (this.current === null || this.isOpening) return
    this.labels.give(this.current.comparison, answer, {
      response_ms: Math.round(this.#now_ms() - this.#shown_ms),
      details: this.details(),
    })
    this.isReviewing = false
    this.#showNext()
  }

  /** Withdraw the newest label and show its comparison again. */
  undo(): void {
    const comparison = this.isOpening ? null : this.labels.withdraw()
    if (comparison === null) return
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
      const loaded = await this.clips.comparison(comparison)
      if (this.current !== null && !this.isReviewing) this.queue.putBack(this.current)
      this.isReviewing = isReviewing
      this.#show(loaded)
    } catch (error) {
      this.notice = `Comparison ${comparison.number} cannot be shown: ${errorText(error)}`
    } finally {
      this.isOpening = false
    }
  }

  #showNext(): void {
    this.#show(this.queue.take())
    void this.queue.fill()
  }

  #show(loaded: LoadedComparison | null): void {
    if (loaded === null) this.previous = this.current
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
    const current = this.current === null ? [] : [this.current.comparison.id]
    return [...current, ...this.labels.excludedIds]
  }

  #handleFilled(): void {
    if (this.labels.connection !== 'ok') {
      this.labels.markReachable()
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
    this.labels.markUnreachable(error)
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

  /** Release the comparisons behind the one on screen: a finished run does not learn from them. */
  #releaseQueued(): void {
    const leases = this.queue.items.flatMap(({ comparison }) => comparison.lease ?? [])
    if (this.queue.drop(() => true)) this.#service.releaseLeases(leases).catch(() => undefined)
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

  #followSummary(summary: ExperimentSummary): void {
    if (summary.progress.asked !== this.summary?.progress.asked) this.#lastAskedStep = summary.step
    if (hasStartedTraining(this.summary, summary)) this.#announceStart()
    if (summary.phase === 'finished') this.#releaseQueued()
    this.summary = summary
    this.#followProgress(summary.progress)
    void this.effects.follow(summary)
    if (summary.latest_episode !== null) void this.latestEpisode.show(summary.latest_episode)
  }

  #announceStart(): void {
    this.isTrainingStarting = true
    clearTimeout(this.#startTimer)
    this.#startTimer = setTimeout(() => (this.isTrainingStarting = false), START_NOTICE_MS)
  }

  #followProgress(progress: Progress): void {
    this.progress.update(progress)
    if (progress.waiting > 0) void this.queue.fill()
  }
}
