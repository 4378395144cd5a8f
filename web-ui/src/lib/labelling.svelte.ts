/**
 * State of the labelling page: shows comparisons, records labels and delivers every one of them.
 * In ranking mode it shows the clips of several comparisons and records their order.
 */

import {
  getComparison,
  getExperiment,
  getLabelEffect,
  getMyLabels,
  getNext,
  postLabels,
  postRanking,
  releaseLeases,
  renewLeases,
  RequestRejected,
  Throttled,
  withdrawRanking,
} from './api'
import { clipLoader, type ClipLoader, type LoadedComparison } from './clips'
import { ComparisonQueue } from './comparison-queue.svelte'
import { listen } from './events'
import { errorText } from './format'
import { GivenLabels } from './given-labels.svelte'
import { hideAsked, LabelEffects } from './label-effect.svelte'
import { LatestEpisode } from './latest-episode.svelte'
import { Leases } from './leases'
import { newRequestId } from './outbox'
import { LabellingProgress, secondsToNext } from './progress.svelte'
import { clipsOf, screenOf, type Groups, type RankingScreen, type ScreenSize } from './ranking'
import { RetryTimer } from './retry-timer'
import { hasStartedTraining } from './status'
import { SummaryReads } from './summary-feed.svelte'
import { currentUser } from './user.svelte'
import type { Answer, Comparison, ExperimentSummary, LabelEffect, Progress } from './api-types'

/** Comparisons to keep ready behind the one on screen. */
const NUM_AHEAD = 3
/** How long the page announces that training starts. */
const START_NOTICE_MS = 8_000
/** Interval of checks whether comparisons leased to others have become free. */
const RECHECK_MS = 10_000
/** Statuses of rejections because of the content of a ranking. */
const RANKING_STATUSES = [400, 404, 409, 413, 422]

/** Returns details to record with a label, such as the playback speed. */
export type LabelDetails = () => Record<string, unknown>

const SERVICE = {
  getNext,
  getComparison,
  getMyLabels,
  getExperiment,
  getLabelEffect,
  postLabels,
  postRanking,
  withdrawRanking,
  renewLeases,
  releaseLeases,
  listen,
}

export type Service = typeof SERVICE

export interface LabellingOptions {
  service?: Service
  user?: Pick<typeof currentUser, 'me' | 'readMe'>
  clips?: Pick<ClipLoader, 'comparison' | 'clip'>
  database?: IDBFactory
  now_ms?: () => number
}

export class LabellingSession {
  /** The comparison on screen. */
  current = $state.raw<LoadedComparison | null>(null)
  /** Clips on one screen: 2 for a comparison, more to rank them. */
  size = $state<ScreenSize>(2)
  /** The clips to rank; `current` is the first of their comparisons. Null while a pair is shown. */
  screen = $state.raw<RankingScreen | null>(null)
  /** The order of the clips on screen so far. */
  groups = $state.raw<Groups>([])
  /** Whether a ranking is being stored. */
  isSaving = $state(false)
  /** The comparison that was on screen before there was nothing to label. */
  previous = $state.raw<LoadedComparison | null>(null)
  /** Whether the comparison on screen was reopened from the recent labels. */
  isReviewing = $state(false)
  isOpening = $state(false)
  summary = $state.raw<ExperimentSummary | null>(null)
  /** Whether training has started for the first time just now. */
  isTrainingStarting = $state(false)
  /** Whether the service rejects requests for comparisons for a few seconds. */
  isThrottled = $state(false)
  /** The last error that does not resolve by itself. */
  notice = $state('')
  /** Why the page cannot start, or that the service rejects its requests. */
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
  /** Although comparisons were waiting. */
  #isHeld = $state(false)
  #shown_ms = 0
  /** The ranking that was sent last, whether it has arrived or not. */
  #attempt: { key: string; id: string } | null = null
  /** The latest ranking of this page, to show it again as it was. */
  #latest: { id: string; hashes: readonly string[]; groups: Groups } | null = null
  /** The step of training at which the number of comparisons last changed. */
  #lastAskedStep = 0
  readonly #reads = new SummaryReads()
  readonly #retryTimer = new RetryTimer()
  #startTimer: ReturnType<typeof setTimeout> | undefined
  #isStopped = false
  /** Ends the pause before the labeler is asked for again. */
  #wake: () => void = () => undefined
  #stopListening: (() => void) | null = null
  readonly #leases: Leases
  readonly #service: Service
  readonly #now_ms: () => number

  constructor(
    readonly name: string,
    readonly details: LabelDetails = () => ({}),
    options: LabellingOptions = {},
  ) {
    const service = options.service ?? SERVICE
    this.#service = service
    this.clips = options.clips ?? clipLoader
    this.#now_ms = options.now_ms ?? (() => performance.now())
    this.latestEpisode = new LatestEpisode(this.clips)
    this.effects = new LabelEffects(name, service)
    this.labels = new GivenLabels({
      name,
      service,
      user: options.user ?? currentUser,
      progress: this.progress,
      onnotice: (message) => (this.notice = message),
      database: options.database,
      now_ms: this.#now_ms,
    })
    this.queue = new ComparisonQueue({
      fetch: (limit, exclude) => this.#fetchNext(limit, exclude),
      clips: this.clips,
      numAhead: () => Math.max(NUM_AHEAD, this.size),
      isShowing: () => this.current !== null,
      excludedIds: () => this.#excludedIds(),
      onready: () => this.current === null && !this.isOpening && this.#isNextReady && this.#showNext(),
      onskip: ({ number }, error) => (this.notice = `Comparison ${number} was skipped: ${errorText(error)}`),
      onfilled: () => this.#handleFilled(),
      onfailed: (error) => this.#handleFailed(error),
    })
    this.#leases = new Leases({
      held: () => leasesOf([...this.#leased().map(({ comparison }) => comparison), ...this.queue.loading]),
      renew: (leases) => service.renewLeases(leases),
      release: (leases) => service.releaseLeases(leases),
      lost: (leases) => this.#dropLeases(leases),
    })
  }

  /** Whether the page has nothing to show but its failure. */
  get isFailed(): boolean {
    const isLasting = this.summary === null || this.failure instanceof RequestRejected
    return this.failure !== null && this.current === null && isLasting
  }

  /** Whether there is nothing to label, as far as is known. */
  get isIdle(): boolean {
    const isFetching = this.queue.isFilling && this.progress.numWaiting > 0 && !this.#isExhausted
    return this.current === null && this.#hasFetched && !this.isOpening && !isFetching
  }

  /** Whether the remaining comparisons are leased to others or labelled by this labeler. */
  get isHeldByOthers(): boolean {
    // Not by the present number alone: new comparisons have yet to be fetched.
    return this.#isHeld && this.progress.numWaiting > 0
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

  /** Whether a pair is shown in ranking mode, because no other comparison is open. */
  get isPairOnly(): boolean {
    const isNew = this.current !== null && !this.isReviewing
    return this.size > 2 && isNew && this.screen === null
  }

  get hasFetched(): boolean {
    return this.#hasFetched
  }

  async start(): Promise<void> {
    await this.#openLabels()
    if (this.#isStopped) return
    await Promise.all([this.#readSummary(), this.labels.readHistory(), this.queue.fill()])
    if (this.#isStopped) return
    this.#stopListening = this.#service.listen(this.name, {
      experiment: (summary) => {
        this.#reads.record(summary)
        this.#followSummary(summary)
      },
      live: (isLive) => isLive && this.retry(),
      poll: () => this.retry(),
    })
    this.#leases.start()
  }

  /** Retry until the labeler is known: labels are stored under that name. */
  async #openLabels(): Promise<void> {
    try {
      await this.labels.open()
    } catch (error) {
      if (this.#isStopped) return
      this.failure = error
      await new Promise<void>((resolve) => {
        this.#wake = resolve
        this.#retryTimer.schedule(resolve)
      })
      if (!this.#isStopped) await this.#openLabels()
    }
  }

  /** End everything, also what `start` still waits for, and release all leases. */
  stop(): void {
    this.#isStopped = true
    this.#wake()
    this.#retryTimer.stop()
    clearTimeout(this.#startTimer)
    this.#stopListening?.()
    this.queue.stop()
    this.#leases.stop()
    this.labels.close()
  }

  /** Retry everything that waits for the network. */
  retry(): void {
    if (!this.labels.isOpen) return this.#wake()
    this.labels.retry()
    void this.queue.fill()
    void this.#readSummary()
  }

  // --- labels ---

  answer(answer: Answer): void {
    if (this.current === null || this.screen !== null || this.isOpening) return
    this.labels.give(this.current.comparison, answer, {
      response_ms: Math.round(this.#now_ms() - this.#shown_ms),
      details: this.details(),
    })
    this.isReviewing = false
    this.#showNext()
  }

  /** Store the order of the clips on screen; those that are not ranked are left out. */
  async rank(): Promise<boolean> {
    const { screen, groups } = this
    if (screen === null || this.isSaving || this.isOpening) return false
    const hashes = screen.clips.map(({ clip }) => clip.hash)
    const key = JSON.stringify([screen.key, groups])
    // An unconfirmed ranking keeps its id, so that sending it again has no effect if it was stored.
    if (this.#attempt?.key !== key) this.#attempt = { key, id: newRequestId() }
    const { id } = this.#attempt
    const duration_ms = this.#now_ms() - this.#shown_ms
    this.isSaving = true
    try {
      // While another account is signed in, the service would reject the ranking, and its order would be lost.
      await this.labels.confirmLabeler()
      const receipt = await this.#service.postRanking(this.name, {
        request_id: id,
        groups: groups.map((group) => [...group]),
        left_out: hashes.filter((hash) => !groups.flat().includes(hash)),
        response_ms: Math.round(duration_ms),
        details: { ...this.details(), screen: hashes.length },
      })
      this.notice = receipt.warning ?? ''
      this.#latest = { id, hashes, groups }
      this.#finishScreen(screen, receipt.comparison_ids, duration_ms)
      return true
    } catch (error) {
      const isRejected =
        error instanceof RequestRejected && RANKING_STATUSES.includes(error.problem.status)
      this.notice = isRejected
        ? `The ranking was rejected: ${error.message}`
        : `The ranking is not saved: ${errorText(error)} Submit it again.`
      if (isRejected) this.#showNext()
      return false
    } finally {
      this.isSaving = false
    }
  }

  #finishScreen(screen: RankingScreen, labelledIds: readonly number[], duration_ms: number): void {
    const num = labelledIds.length
    for (let i = num - 1; i >= 0; i--) {
      this.progress.recordLabel(this.#now_ms() - (duration_ms * i) / num)
    }
    const labelled = new Set(labelledIds)
    this.queue.drop(({ id }) => labelled.has(id))
    // Of an odd number of clips, one is of a comparison whose other clip comes next.
    this.queue.putBack(...screen.comparisons.filter(({ comparison }) => !labelled.has(comparison.id)))
    this.#showNext()
    void this.labels.readRankings()
  }

  /** Withdraw the newest label, or the ranking it belongs to; return whether its clips are shown again. */
  async undo(): Promise<boolean> {
    if (this.isOpening || this.isSaving) return false
    const ranking = this.labels.newestRanking
    if (ranking !== null) return this.#withdrawRanking(ranking)
    const comparison = this.labels.withdraw()
    if (comparison === null) return false
    if (this.current?.comparison.id !== comparison.id) return this.#open(comparison, false)
    this.isReviewing = false
    this.#show({ ...this.current, comparison })
    return true
  }

  async #withdrawRanking(id: string): Promise<boolean> {
    let isShown = false
    this.isOpening = true
    try {
      const comparisons = await this.#service.withdrawRanking(this.name, id)
      if (this.#isStopped) {
        this.#release(comparisons)
        return false
      }
      if (comparisons.length === 0) throw new Error('its labels were replaced in another tab.')
      const loaded = await Promise.all(comparisons.map((one) => this.clips.comparison(one)))
      this.#putBackCurrent()
      this.isReviewing = false
      this.#showRanking({ ...screenOf(loaded, clipsOf(loaded).length), key: `again ${id}` })
      if (this.#latest?.id === id) {
        const { hashes, groups } = this.#latest
        const order = (hash: string) => hashes.indexOf(hash)
        const clips = [...this.screen!.clips].sort((a, b) => order(a.clip.hash) - order(b.clip.hash))
        this.screen = { ...this.screen!, clips }
        this.groups = groups
      }
      isShown = true
    } catch (error) {
      this.notice = `The ranking was not withdrawn: ${errorText(error)}`
    } finally {
      this.isOpening = false
    }
    void this.labels.readRankings()
    return isShown
  }

  /** Choose the number of clips on one screen. */
  setSize(size: ScreenSize): void {
    if (size === this.size || this.isSaving) return
    this.size = size
    if (this.current === null || this.isReviewing) return
    this.#putBackCurrent()
    this.#showNext()
  }

  /** Show a labelled comparison again; answering it replaces the label. */
  review(comparison: Comparison): void {
    if (comparison.id !== this.current?.comparison.id) void this.#open(comparison, true)
  }

  /** Show the comparison that a link names, labelled or not. */
  async openById(id: number): Promise<void> {
    if (this.#isStopped) return
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

  async #open(comparison: Comparison, isReviewing: boolean): Promise<boolean> {
    // A ranking that is being saved still has the screen.
    if (this.isOpening || this.isSaving) return false
    this.isOpening = true
    try {
      const loaded = await this.clips.comparison(comparison)
      this.#putBackCurrent()
      this.isReviewing = isReviewing
      this.#show(loaded)
      return true
    } catch (error) {
      this.notice = `Comparison ${comparison.number} cannot be shown: ${errorText(error)}`
      return false
    } finally {
      this.isOpening = false
    }
  }

  /** Return what is on screen to the queue, unless it was reopened from the recent labels. */
  #putBackCurrent(): void {
    if (this.current !== null && !this.isReviewing) this.queue.putBack(...this.#onScreen)
  }

  get #onScreen(): readonly LoadedComparison[] {
    if (this.screen !== null) return this.screen.comparisons
    return this.current === null ? [] : [this.current]
  }

  /** Whether the queue has what the next screen shows. */
  get #isNextReady(): boolean {
    return this.size === 2 || clipsOf(this.queue.items).length >= this.size
  }

  #showNext(): void {
    if (this.#isNextReady) this.#showQueued()
    else this.#show(null)
    void this.queue.fill()
  }

  /** Show the clips of the first comparisons of the queue, or the only one. */
  #showQueued(): void {
    if (this.size === 2 || this.queue.items.length < 2) {
      this.#show(this.queue.take())
      return
    }
    const screen = screenOf(this.queue.items, this.size)
    if (screen.clips.length === 2) {
      this.#show(this.queue.take())
      return
    }
    const ids = new Set(screen.comparisons.map(({ comparison }) => comparison.id))
    this.queue.drop(({ id }) => ids.has(id))
    this.#showRanking(screen)
  }

  #showRanking(screen: RankingScreen): void {
    this.#show(screen.comparisons[0]!)
    this.screen = screen
  }

  #show(loaded: LoadedComparison | null): void {
    this.screen = null
    this.groups = []
    if (loaded === null) this.previous = this.current
    this.current = loaded
    this.#shown_ms = this.#now_ms()
    if (loaded === null && this.latestEpisode.current === null) void this.#readSummary()
  }

  // --- queue and leases ---

  async #fetchNext(limit: number, exclude: ReadonlySet<number>): Promise<Comparison[]> {
    const { comparisons, progress } = await this.#service.getNext(this.name, limit, exclude)
    if (this.#isStopped) {
      this.#release(comparisons)
      return []
    }
    if (comparisons.length > 0) this.#isExhausted = false
    this.progress.update(progress)
    this.#hasFetched = true
    // An experiment may be replaced by one of the same name.
    if (this.summary !== null) this.failure = null
    return comparisons
  }

  #excludedIds(): number[] {
    const shown = this.#onScreen.map(({ comparison }) => comparison.id)
    return [...shown, ...this.labels.excludedIds]
  }

  #handleFilled(): void {
    this.isThrottled = false
    if (this.labels.connection !== 'ok') {
      this.labels.markReachable()
      if (this.summary === null) void this.#readSummary()
    }
    this.#showRest()
    this.#isExhausted = this.current === null && !this.isOpening
    this.#isHeld = this.#isExhausted && this.progress.numWaiting > 0
    if (!this.isHeldByOthers) return
    // The service does not announce the end of another labeler's lease.
    this.#retryTimer.schedule(() => this.queue.fill(), RECHECK_MS)
  }

  /** Show what the queue has, if it is less than the chosen number of clips. */
  #showRest(): void {
    if (this.current === null && !this.isOpening && this.queue.items.length > 0) this.#showQueued()
  }

  #handleFailed(error: unknown): void {
    this.#showRest()
    if (error instanceof RequestRejected) {
      this.failure = error
      return
    }
    this.isThrottled = error instanceof Throttled
    this.labels.markFailed(error)
    this.#retryTimer.schedule(() => this.retry())
  }

  /** Comparisons that are leased to this page. */
  #leased(): readonly LoadedComparison[] {
    const { items } = this.queue
    return this.isReviewing ? items : [...this.#onScreen, ...items]
  }

  /** Drop comparisons whose leases ended; the one on screen stays, since its label still counts. */
  #dropLeases(leases: ReadonlySet<string>): void {
    if (this.queue.drop(({ lease }) => leases.has(lease ?? ''))) void this.queue.fill()
  }

  /** Release the comparisons behind the one on screen: a finished run does not learn from them. */
  #releaseQueued(): void {
    const queued = this.queue.items.map(({ comparison }) => comparison)
    if (this.queue.drop(() => true)) this.#release(queued)
  }

  #release(comparisons: readonly Comparison[]): void {
    const leases = leasesOf(comparisons)
    if (leases.length > 0) this.#service.releaseLeases(leases).catch(() => undefined)
  }

  // --- state of the service ---

  async #readSummary(): Promise<void> {
    try {
      const latest = await this.#reads.read(() => this.#service.getExperiment(this.name))
      if (latest === null || this.#isStopped) return
      this.#followSummary(latest.newer.get(this.name) ?? latest.response)
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

const leasesOf = (comparisons: readonly Comparison[]): string[] =>
  comparisons.flatMap(({ lease }) => lease ?? [])
