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
  withdrawRanking,
} from './api'
import { clipLoader, type ClipLoader, type LoadedComparison } from './clips'
import { ComparisonQueue } from './comparison-queue.svelte'
import { Feed } from './feed.svelte'
import { errorText } from './format'
import { GivenLabels } from './given-labels.svelte'
import { hideAsked, LabelEffects } from './label-effect.svelte'
import { LatestEpisode } from './latest-episode.svelte'
import { Leases } from './leases'
import { newRequestId } from './outbox'
import { pageState, troubleOf, type Facts, type PageState, type Trouble } from './page-state'
import { LabellingProgress, secondsToNext } from './progress.svelte'
import { clipsOf, screenOf, type Groups, type RankingScreen, type ScreenSize } from './ranking'
import { Resource } from './resource.svelte'
import { milestoneOf } from './status'
import { currentUser } from './user.svelte'
import type { Answer, Comparison, ExperimentSummary, LabelEffect } from './api-types'

/** Comparisons to keep ready behind the one on screen. */
const NUM_AHEAD = 3
/** How long the page announces a milestone. */
const MILESTONE_MS = 8_000
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
}

export type Service = typeof SERVICE

export interface LabellingOptions {
  service?: Service
  user?: Pick<typeof currentUser, 'me' | 'readMe'>
  clips?: Pick<ClipLoader, 'comparison' | 'clip'>
  database?: IDBFactory
  now_ms?: () => number
}

/** What is on screen: a new comparison, a labelled one that was reopened, or clips to rank and their order so far. */
export type Shown =
  | { kind: 'pair' | 'review'; pair: LoadedComparison }
  | { kind: 'ranking'; screen: RankingScreen; groups: Groups }

export class LabellingSession {
  shown = $state.raw<Shown | null>(null)
  /** The comparison that was on screen last, for when there is none. */
  previous = $state.raw<LoadedComparison | null>(null)
  /** What has the screen until it is done: a comparison is being loaded, or a ranking is being stored. */
  busy = $state<'opening' | 'saving' | null>(null)
  /** Clips on one screen: 2 for a comparison, more to rank them. */
  size = $state<ScreenSize>(2)
  summary = $state.raw<ExperimentSummary | null>(null)
  /** The last error that does not resolve by itself. */
  notice = $state('')
  readonly progress = new LabellingProgress()
  readonly labels: GivenLabels
  readonly queue: ComparisonQueue
  readonly latestEpisode: LatestEpisode
  readonly effects: LabelEffects
  readonly clips: Pick<ClipLoader, 'comparison' | 'clip'>

  /** What the run has just reached, or an empty string. */
  #milestone = $state('')
  #hasFetched = $state(false)
  /** What the service had for this labeler when it was last asked: nothing, or nothing although some wait. */
  #supply = $state<'some' | 'none' | 'held'>('some')
  #shown_ms = 0
  /** The ranking that was sent last, whether it has arrived or not. */
  #attempt: { key: string; id: string } | null = null
  /** The latest ranking of this page, to show it again as it was. */
  #latest: { id: string; hashes: readonly string[]; groups: Groups } | null = null
  /** The step of training at which the number of comparisons last changed. */
  #lastAskedStep = 0
  #milestoneTimer: ReturnType<typeof setTimeout> | undefined
  #begun: Promise<void> | null = null
  #stopFeed: () => void = () => undefined
  readonly #opening: Resource<void>
  readonly #feed: Feed<ExperimentSummary>
  readonly #leases: Leases
  readonly #service: Service
  readonly #now_ms: () => number

  /** @param linkedId id of a comparison to show first; 0 for none. */
  constructor(
    readonly name: string,
    readonly details: LabelDetails = () => ({}),
    options: LabellingOptions = {},
    private readonly linkedId = 0,
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
    // Labels are stored under the name of the labeler: nothing is shown before it is known.
    this.#opening = new Resource(() => this.labels.open(), {
      received: () => (this.#begun ??= this.#begin()),
      retries: () => true,
    })
    this.#feed = new Feed<ExperimentSummary>({
      name,
      request: () => service.getExperiment(name),
      received: (summary) => this.#follow(summary),
      updated: (summary) => this.#follow(summary),
      opened: () => this.labels.retry(),
    })
    this.queue = new ComparisonQueue({
      fetch: (limit, exclude) => this.#fetchNext(limit, exclude),
      clips: this.clips,
      numAhead: () => Math.max(NUM_AHEAD, this.size),
      isShowing: () => this.shown !== null,
      excludedIds: () => this.#excludedIds(),
      onready: () => this.#isFree && this.#isNextReady && this.#showNext(),
      onskip: ({ number }, error) => (this.notice = `Comparison ${number} was skipped: ${errorText(error)}`),
      onfilled: () => this.#handleFilled(),
    })
    this.#leases = new Leases({
      held: () => leasesOf([...this.#leased().map(({ comparison }) => comparison), ...this.queue.loading]),
      renew: (leases) => service.renewLeases(leases),
      release: (leases) => service.releaseLeases(leases),
      lost: (leases) => this.#dropLeases(leases),
    })
  }

  /** The comparison on screen: to answer, or the first of those to rank. */
  get current(): LoadedComparison | null {
    return this.#onScreen[0] ?? null
  }

  /** What the page says. */
  get state(): PageState {
    return pageState(this.#facts)
  }

  get #facts(): Facts {
    const { shown, summary, progress, labels } = this
    return {
      shown: shown?.kind ?? null,
      numClips: shown?.kind === 'ranking' ? shown.screen.clips.length : 2,
      isPairOnly: this.size > 2 && shown?.kind === 'pair',
      failure: this.failure,
      trouble: this.trouble,
      summary,
      counts: progress.counts,
      numMissing: progress.numMissing,
      // Not by the present number alone: new comparisons have yet to be fetched.
      isHeld: this.#supply === 'held' && progress.numWaiting > 0,
      isLoading: this.#isLoading,
      milestone: this.#milestone,
      numAhead: this.queue.items.length,
      numUnsent: labels.numUnsent,
      isDurable: labels.isDurable,
      isOwner: currentUser.isOwner,
      next_s: summary === null ? null : secondsToNext(summary, this.#lastAskedStep),
    }
  }

  /** Why the page has nothing to show, for good. */
  get failure(): unknown {
    const { failure } = this.queue.supply
    return this.#opening.failure ?? (this.summary === null ? this.#feed.failure : null) ?? (failure instanceof RequestRejected ? failure : null)
  }

  /** Why labels are not delivered, or no comparisons come. */
  get trouble(): Trouble | null {
    const delivery = troubleOf(this.labels.failure)
    if (delivery === 'signed out' || delivery === 'offline') return delivery
    // A rejected delivery is repeated like one that does not arrive.
    return this.labels.failure instanceof RequestRejected ? 'offline' : troubleOf(this.queue.supply.failure)
  }

  get #isLoading(): boolean {
    if (this.shown !== null) return false
    const isFetching = this.queue.supply.isReading && this.progress.numWaiting > 0 && this.#supply === 'some'
    return !this.#hasFetched || this.busy === 'opening' || isFetching
  }

  /** The effect of the labels so far, without clips that are asked about; null if there is none. */
  get effect(): LabelEffect | null {
    const { latest } = this.effects
    if (latest === null) return null
    const asked = this.#leased().map(({ comparison }) => comparison)
    return hideAsked(latest, asked, this.labels.history)
  }

  /** Whether no clip of the agent may be shown yet. */
  get hasFetched(): boolean {
    return this.#hasFetched
  }

  async start(): Promise<void> {
    await this.#opening.read()
    await this.#begun
  }

  async #begin(): Promise<void> {
    this.#stopFeed = this.#feed.start()
    this.#leases.start()
    await Promise.all([this.#feed.read(), this.labels.readHistory(), this.queue.fill()])
    if (this.linkedId > 0) await this.openById(this.linkedId)
  }

  get #isStopped(): boolean {
    return this.#opening.isStopped
  }

  /** End everything, also what `start` still waits for, and release all leases. */
  stop(): void {
    this.#opening.stop()
    clearTimeout(this.#milestoneTimer)
    this.#stopFeed()
    this.queue.supply.stop()
    this.effects.stop()
    this.#leases.stop()
    this.labels.close()
  }

  /** Retry everything that waits for the network. */
  retry(): void {
    if (!this.labels.isOpen) return void this.#opening.read()
    this.labels.retry()
    void this.queue.fill()
    void this.#feed.read()
  }

  // --- labels ---

  answer(answer: Answer): void {
    if (this.shown === null || this.shown.kind === 'ranking' || this.busy !== null) return
    this.labels.give(this.shown.pair.comparison, answer, {
      response_ms: Math.round(this.#now_ms() - this.#shown_ms),
      details: this.details(),
    })
    this.#showNext()
  }

  /** Change the order of the clips on screen. */
  order(groups: Groups): void {
    if (this.shown?.kind === 'ranking' && this.busy === null) this.shown = { ...this.shown, groups }
  }

  /** Store the order of the clips on screen; those that are not ranked are left out. */
  async rank(): Promise<boolean> {
    const { shown } = this
    if (shown?.kind !== 'ranking' || this.busy !== null) return false
    const { screen, groups } = shown
    const hashes = screen.clips.map(({ clip }) => clip.hash)
    const key = JSON.stringify([screen.key, groups])
    // An unconfirmed ranking keeps its id, so that sending it again has no effect if it was stored.
    if (this.#attempt?.key !== key) this.#attempt = { key, id: newRequestId() }
    const { id } = this.#attempt
    const duration_ms = this.#now_ms() - this.#shown_ms
    this.busy = 'saving'
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
      this.busy = null
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
    if (this.busy !== null) return false
    const ranking = this.labels.newestRanking
    if (ranking !== null) return this.#withdrawRanking(ranking)
    const comparison = this.labels.withdraw()
    if (comparison === null) return false
    if (this.current?.comparison.id !== comparison.id) return this.#open(comparison, 'pair')
    this.#show({ kind: 'pair', pair: { ...this.current, comparison } })
    return true
  }

  async #withdrawRanking(id: string): Promise<boolean> {
    let isShown = false
    this.busy = 'opening'
    try {
      const comparisons = await this.#service.withdrawRanking(this.name, id)
      if (this.#isStopped) {
        this.#release(comparisons)
        return false
      }
      if (comparisons.length === 0) throw new Error('its labels were replaced in another tab.')
      const loaded = await Promise.all(comparisons.map((one) => this.clips.comparison(one)))
      const screen = { ...screenOf(loaded, clipsOf(loaded).length), key: `again ${id}` }
      const none = { hashes: [] as string[], groups: [] }
      const { hashes, groups } = this.#latest?.id === id ? this.#latest : none
      const order = (hash: string) => hashes.indexOf(hash)
      const clips = [...screen.clips].sort((a, b) => order(a.clip.hash) - order(b.clip.hash))
      this.#putBackCurrent()
      this.#show({ kind: 'ranking', screen: { ...screen, clips }, groups })
      isShown = true
    } catch (error) {
      this.notice = `The ranking was not withdrawn: ${errorText(error)}`
    } finally {
      this.busy = null
    }
    void this.labels.readRankings()
    return isShown
  }

  /** Choose the number of clips on one screen. */
  setSize(size: ScreenSize): void {
    if (size === this.size || this.busy === 'saving') return
    this.size = size
    if (this.shown === null || this.shown.kind === 'review') return
    this.#putBackCurrent()
    this.#showNext()
  }

  /** Show a labelled comparison again; answering it replaces the label. */
  review(comparison: Comparison): void {
    if (comparison.id !== this.current?.comparison.id) void this.#open(comparison, 'review')
  }

  /** Show the comparison that a link names, labelled or not. */
  async openById(id: number): Promise<void> {
    if (this.#isStopped) return
    try {
      const comparison = await this.#service.getComparison(id)
      if (comparison.id === this.current?.comparison.id) return
      this.queue.drop((queued) => queued.id === id)
      await this.#open(comparison, comparison.answer === null ? 'pair' : 'review')
    } catch (error) {
      this.notice = `This comparison cannot be shown: ${errorText(error)}`
    }
  }

  /** Close a reopened comparison without changing its label. */
  leaveReview(): void {
    if (this.shown?.kind === 'review') this.#showNext()
  }

  async #open(comparison: Comparison, kind: 'pair' | 'review'): Promise<boolean> {
    if (this.busy !== null) return false
    this.busy = 'opening'
    try {
      const pair = await this.clips.comparison(comparison)
      this.#putBackCurrent()
      this.#show({ kind, pair })
      return true
    } catch (error) {
      this.notice = `Comparison ${comparison.number} cannot be shown: ${errorText(error)}`
      return false
    } finally {
      this.busy = null
    }
  }

  /** Return what is on screen to the queue, unless it was reopened from the recent labels. */
  #putBackCurrent(): void {
    if (this.shown?.kind !== 'review') this.queue.putBack(...this.#onScreen)
  }

  get #onScreen(): readonly LoadedComparison[] {
    const { shown } = this
    if (shown === null) return []
    return shown.kind === 'ranking' ? shown.screen.comparisons : [shown.pair]
  }

  /** Whether nothing is shown, nor about to be. */
  get #isFree(): boolean {
    return this.shown === null && this.busy !== 'opening'
  }

  /** Whether the queue has what the next screen shows. */
  get #isNextReady(): boolean {
    return this.size === 2 || clipsOf(this.queue.items).length >= this.size
  }

  #showNext(): void {
    this.#show(this.#isNextReady ? this.#takeQueued() : null)
    void this.queue.fill()
  }

  /** Take the clips of the first comparisons of the queue, or the only one. */
  #takeQueued(): Shown | null {
    const screen = this.size === 2 ? null : screenOf(this.queue.items, this.size)
    if (screen === null || screen.clips.length <= 2) {
      const pair = this.queue.take()
      return pair && { kind: 'pair', pair }
    }
    const ids = new Set(screen.comparisons.map(({ comparison }) => comparison.id))
    this.queue.drop(({ id }) => ids.has(id))
    return { kind: 'ranking', screen, groups: [] }
  }

  #show(shown: Shown | null): void {
    this.previous = this.current ?? this.previous
    this.shown = shown
    this.#shown_ms = this.#now_ms()
  }

  // --- queue and leases ---

  async #fetchNext(limit: number, exclude: ReadonlySet<number>): Promise<Comparison[]> {
    const { comparisons, progress } = await this.#service.getNext(this.name, limit, exclude).catch((error: unknown) => {
      this.#showRest()
      throw error
    })
    if (this.#isStopped) {
      this.#release(comparisons)
      return []
    }
    if (comparisons.length > 0) this.#supply = 'some'
    this.progress.update(progress)
    this.#hasFetched = true
    return comparisons
  }

  #excludedIds(): number[] {
    const shown = this.#onScreen.map(({ comparison }) => comparison.id)
    return [...shown, ...this.labels.excludedIds]
  }

  #handleFilled(): void {
    this.#showRest()
    this.#supply = !this.#isFree ? 'some' : this.progress.numWaiting > 0 ? 'held' : 'none'
    // The service does not announce the end of another labeler's lease.
    this.queue.supply.refresh_ms = this.#supply === 'held' ? RECHECK_MS : null
  }

  /** Show what the queue has, if it is less than the chosen number of clips. */
  #showRest(): void {
    if (this.#isFree && this.queue.items.length > 0) this.#show(this.#takeQueued())
  }

  /** Comparisons that are leased to this page. */
  #leased(): readonly LoadedComparison[] {
    const { items } = this.queue
    return this.shown?.kind === 'review' ? items : [...this.#onScreen, ...items]
  }

  /** Drop comparisons whose leases ended; the one on screen stays, since its label still counts. */
  #dropLeases(leases: ReadonlySet<string>): void {
    if (this.queue.drop(({ lease }) => leases.has(lease ?? ''))) void this.queue.fill()
  }

  /** Release all comparisons: a finished run does not learn from them. */
  #releaseQueued(): void {
    this.#putBackCurrent()
    if (this.shown?.kind !== 'review') this.#show(null)
    const queued = this.queue.items.map(({ comparison }) => comparison)
    if (this.queue.drop(() => true)) this.#release(queued)
  }

  #release(comparisons: readonly Comparison[]): void {
    const leases = leasesOf(comparisons)
    if (leases.length > 0) this.#service.releaseLeases(leases).catch(() => undefined)
  }

  // --- state of the service ---

  #follow(summary: ExperimentSummary): void {
    if (summary.progress.asked !== this.summary?.progress.asked) this.#lastAskedStep = summary.step
    this.#announce(milestoneOf(this.summary, summary))
    if (summary.phase === 'finished') this.#releaseQueued()
    this.summary = summary
    this.progress.follow(summary)
    if (summary.progress.waiting > 0) void this.queue.fill()
    void this.effects.follow(summary)
    if (summary.latest_episode !== null) void this.latestEpisode.show(summary.latest_episode)
  }

  #announce(milestone: string): void {
    if (milestone === '') return
    this.#milestone = milestone
    clearTimeout(this.#milestoneTimer)
    this.#milestoneTimer = setTimeout(() => (this.#milestone = ''), MILESTONE_MS)
  }
}

const leasesOf = (comparisons: readonly Comparison[]): string[] =>
  comparisons.flatMap(({ lease }) => lease ?? [])
