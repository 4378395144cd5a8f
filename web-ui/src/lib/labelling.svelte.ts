/** What happens on the labelling page: asks, takes answers, looks ahead, and never loses one. */

import * as api from './api'
import { Refused, SignedOut } from './api'
import { ClipLoader, isBroken, type LoadedClip, type LoadedComparison } from './clips'
import { answerTo, remember, restore, takeBack, type History } from './history'
import { Leases } from './leases'
import { Outbox, type Delivery } from './outbox'
import type { Answer, Comparison, Episode, NewLabel, Progress, Summary } from './types'
import { labelsPerMinute } from './format'

/** Comparisons kept ready behind the one on screen. */
const AHEAD = 3
const RETRY_MS = 3_000
/** Between two looks at whether what others had in hand has come free. */
const LOOK_AGAIN_MS = 10_000

export type Connection = Delivery

/** What the page records with an answer besides the answer; it says so itself. */
export type Circumstances = () => Record<string, unknown>

export type Service = Pick<
  typeof api,
  | 'getNext'
  | 'getComparison'
  | 'getMyLabels'
  | 'getExperiment'
  | 'postLabels'
  | 'listen'
  | 'renewLeases'
  | 'releaseLeases'
>

export interface LabellingOptions {
  service?: Service
  clips?: Pick<ClipLoader, 'comparison' | 'clip'>
  database?: IDBFactory
  now_ms?: () => number
}

export class Labelling {
  /** The comparison on screen. */
  current = $state.raw<LoadedComparison | null>(null)
  /** Whether the one on screen was opened again from the last answers. */
  isReviewing = $state(false)
  ahead = $state.raw<readonly LoadedComparison[]>([])
  history = $state.raw<History>([])
  summary = $state.raw<Summary | null>(null)
  /** What the agent did last, to look at while nothing waits. */
  episode = $state.raw<{ episode: Episode; loaded: LoadedClip } | null>(null)
  /** Whether the service has said at least once what waits. */
  hasAsked = $state(false)
  isRefilling = $state(false)
  connection = $state<Connection>('ok')
  isOpening = $state(false)
  /** The last thing that went wrong and does not mend itself. */
  notice = $state('')
  unsentIds = $state.raw<ReadonlySet<number>>(new Set())
  numUnsent = $state(0)
  perMinute = $state.raw<number | null>(null)
  /** Why the page cannot begin at all. */
  failure = $state.raw<unknown>(null)

  #progress = $state.raw<Progress | null>(null)
  #unsentChange = $state(0)
  /** Comparisons wait, but none for this labeler: others have them in hand. */
  #isLeftOver = $state(false)
  #outbox: Outbox | null = null
  #answeredIds = new Set<number>()
  #brokenIds = new Set<number>()
  #times_ms: number[] = []
  #shown_ms = 0
  #mustRefillAgain = false
  #retryTimer: ReturnType<typeof setTimeout> | undefined
  #knowsHistory = false
  #stop: (() => void) | null = null
  #wantedEpisode = ''
  readonly #leases: Leases
  readonly #service: Service
  readonly #clips: Pick<ClipLoader, 'comparison' | 'clip'>
  readonly #now_ms: () => number

  constructor(
    readonly name: string,
    readonly circumstances: Circumstances = () => ({}),
    private readonly options: LabellingOptions = {},
  ) {
    this.#service = options.service ?? api
    this.#clips = options.clips ?? new ClipLoader()
    this.#now_ms = options.now_ms ?? (() => performance.now())
    this.#leases = new Leases({
      held: () => leasesOf(this.#atHand()),
      renew: (leases) => this.#service.renewLeases(leases),
      release: (leases) => this.#service.releaseLeases(leases),
      lost: (leases) => this.#drop(leases),
    })
  }

  /** Counts of the service, and on top what it has not been told yet. */
  get progress(): Progress | null {
    const known = this.#progress
    if (known === null) return null
    const change = this.#unsentChange
    return {
      ...known,
      mine: Math.max(0, known.mine + change),
      answered: Math.max(0, known.answered + change),
      waiting: Math.max(0, known.waiting - change),
    }
  }

  /** Whether there is nothing to answer, as far as is known. */
  get isIdle(): boolean {
    const isFetching = this.isRefilling && this.#numWaiting > 0 && !this.#isLeftOver
    return this.current === null && this.hasAsked && !this.isOpening && !isFetching
  }

  /** Whether what waits is in the hands of others. */
  get isLeftOver(): boolean {
    return this.#isLeftOver && this.#numWaiting > 0
  }

  get #numWaiting(): number {
    return this.progress?.waiting ?? 0
  }

  async start(): Promise<void> {
    this.#outbox = await Outbox.open({
      send: (labels) => this.#service.postLabels(labels),
      changed: () => this.#followOutbox(),
      accepted: (labels) => this.#count(labels.reduce((sum, one) => sum + one.change, 0)),
      refused: (one, problem) => {
        this.notice = `The answer to comparison ${one.comparison.id} was refused: ${problem.detail}`
      },
      database: this.options.database,
    })
    this.#followOutbox()
    await Promise.all([this.#readSummary(), this.#readHistory(), this.refill()])
    this.#stop = this.#service.listen(this.name, {
      progress: (progress) => this.#learn(progress),
      experiment: (summary) => this.#describe(summary),
      episode: (episode) => void this.#showEpisode(episode),
      live: (isLive) => isLive && this.retry(),
      poll: () => this.retry(),
    })
    this.#leases.start()
  }

  stop(): void {
    clearTimeout(this.#retryTimer)
    this.#stop?.()
    this.#leases.stop()
    this.#outbox?.close()
  }

  /** Tries everything again that waits for the network. */
  retry(): void {
    void this.#outbox?.flush()
    void this.refill()
    if (this.summary === null || this.current === null) void this.#readSummary()
    if (!this.#knowsHistory) void this.#readHistory()
  }

  // --- answers ---

  answer(answer: Answer): void {
    const ready = this.current
    if (ready === null || this.isOpening) return
    const { comparison } = ready
    const isNew = answerTo(this.history, comparison.id) === null && comparison.answer === null
    this.#put(comparison, answer, isNew ? 1 : 0)
    this.history = remember(this.history, withoutLease(comparison), answer)
    this.#answeredIds.add(comparison.id)
    this.#times_ms.push(this.#now_ms())
    this.perMinute = labelsPerMinute(this.#times_ms)
    this.isReviewing = false
    this.#showNext()
  }

  /** Takes the newest answer back and asks again. */
  undo(): void {
    const { history, taken } = takeBack(this.history)
    if (taken === null || this.isOpening) return
    const comparison = { ...taken.comparison, answer: null }
    this.history = history
    this.#answeredIds.delete(comparison.id)
    this.#put(comparison, null, -1)
    if (this.current?.comparison.id === comparison.id) {
      this.isReviewing = false
      this.#show({ ...this.current, comparison })
      return
    }
    void this.#open(comparison, false)
  }

  /** Shows an answered comparison again; answering it replaces the answer. */
  review(comparison: Comparison): void {
    if (comparison.id !== this.current?.comparison.id) void this.#open(comparison, true)
  }

  /** Shows the comparison that a link names, whether it was answered or not. */
  async openById(id: number): Promise<void> {
    try {
      const comparison = await this.#service.getComparison(id)
      if (comparison.id === this.current?.comparison.id) return
      this.ahead = this.ahead.filter((ready) => ready.comparison.id !== id)
      await this.#open(comparison, comparison.answer !== null)
    } catch (error) {
      this.notice = `Comparison ${id} cannot be shown: ${textOf(error)}`
    }
  }

  /** Leaves an answered comparison as it is. */
  leaveReview(): void {
    if (!this.isReviewing) return
    this.isReviewing = false
    this.#showNext()
  }

  async #open(comparison: Comparison, isReviewing: boolean): Promise<void> {
    if (this.isOpening) return
    this.isOpening = true
    try {
      const ready = await this.#clips.comparison(comparison)
      this.#putBack()
      this.isReviewing = isReviewing
      this.#show(ready)
    } catch (error) {
      this.notice = `Comparison ${comparison.id} cannot be shown: ${textOf(error)}`
    } finally {
      this.isOpening = false
    }
  }

  /** The comparison on screen goes to the front of those that wait, unless it has its answer. */
  #putBack(): void {
    if (this.current !== null && !this.isReviewing) this.ahead = [this.current, ...this.ahead]
  }

  #put(comparison: Comparison, answer: Answer | null, change: number): void {
    const label: NewLabel = {
      request_id: newUuid(),
      comparison_id: comparison.id,
      answer,
      lease: answer === null ? null : (comparison.lease ?? null),
      left_hash: comparison.left.hash,
      response_ms: answer === null ? null : Math.round(this.#now_ms() - this.#shown_ms),
      details: answer === null ? null : this.circumstances(),
    }
    const answered_at = new Date().toISOString()
    const answered: Comparison = { ...withoutLease(comparison), answer }
    void this.#outbox?.add({ label, comparison: answered, change, answered_at })
  }

  // --- what is shown ---

  #showNext(): void {
    const [next = null, ...rest] = this.ahead
    this.ahead = rest
    this.#show(next)
    void this.refill()
  }

  #show(ready: LoadedComparison | null): void {
    this.current = ready
    this.#shown_ms = this.#now_ms()
    if (ready === null && this.episode === null) void this.#readSummary()
  }

  /** Fetches comparisons until enough are ready. */
  async refill(): Promise<void> {
    this.#mustRefillAgain = this.isRefilling
    if (this.isRefilling) return
    this.isRefilling = true
    try {
      while (await this.#refillOnce());
      this.#reached()
      this.#lookAgain()
    } catch (error) {
      this.#lost(error)
    } finally {
      this.isRefilling = false
    }
    if (this.#mustRefillAgain) void this.refill()
  }

  /** Note: nobody tells when a lease of somebody else ends. */
  #lookAgain(): void {
    this.#isLeftOver = this.current === null && !this.isOpening
    if (!this.isLeftOver) return
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => void this.refill(), LOOK_AGAIN_MS)
  }

  /** @returns whether there is room for more and the service may have more. */
  async #refillOnce(): Promise<boolean> {
    const missing = AHEAD - this.ahead.length + (this.current === null ? 1 : 0)
    if (missing <= 0) return false
    const { comparisons, progress } = await this.#service.getNext(
      this.name,
      missing,
      this.#knownIds(),
    )
    this.#progress = progress
    this.hasAsked = true
    const known = this.#knownIds()
    const fresh = comparisons.filter(({ id }) => !known.has(id))
    const loading = fresh.map((comparison) => this.#prepare(comparison))
    // Note: one failure ends the loop below; the others must not count as unhandled then.
    for (const ready of loading) ready.catch(() => undefined)
    for (const ready of loading) this.#enqueue(await ready)
    return fresh.length > 0
  }

  async #prepare(comparison: Comparison): Promise<LoadedComparison | null> {
    try {
      return await this.#clips.comparison(comparison)
    } catch (error) {
      if (!isBroken(error)) throw error
      this.#brokenIds.add(comparison.id)
      this.notice = `Comparison ${comparison.id} was left out: ${textOf(error)}`
      return null
    }
  }

  #enqueue(ready: LoadedComparison | null): void {
    if (ready === null || this.#knownIds().has(ready.comparison.id)) return
    this.ahead = [...this.ahead, ready]
    if (this.current === null && !this.isOpening) this.#showNext()
  }

  /** What was given to answer, and waits here for that. */
  #atHand(): LoadedComparison[] {
    return this.current === null || this.isReviewing ? [...this.ahead] : [this.current, ...this.ahead]
  }

  /** Leaves out what others will answer; what is on screen stays, its answer is kept in any case. */
  #drop(leases: ReadonlySet<string>): void {
    const before = this.ahead.length
    this.ahead = this.ahead.filter(({ comparison }) => !leases.has(comparison.lease ?? ''))
    if (this.ahead.length < before) void this.refill()
  }

  #knownIds(): Set<number> {
    const unsent = this.#outbox?.unsent.filter(({ label }) => label.answer !== null) ?? []
    return new Set([
      ...(this.current === null ? [] : [this.current.comparison.id]),
      ...this.ahead.map(({ comparison }) => comparison.id),
      ...unsent.map(({ comparison }) => comparison.id),
      ...[...this.#answeredIds].slice(-AHEAD * 4),
      ...this.#brokenIds,
    ])
  }

  // --- what the service tells ---

  async #readSummary(): Promise<void> {
    try {
      this.#describe(await this.#service.getExperiment(this.name))
      this.failure = null
    } catch (error) {
      if (this.summary === null) this.failure = error
    }
  }

  async #readHistory(): Promise<void> {
    const own = (this.#outbox?.unsent ?? []).filter((one) => one.comparison.experiment === this.name)
    try {
      const labels = await this.#service.getMyLabels(this.name)
      const oldestFirst = labels.map(({ comparison }) => comparison).reverse()
      const since = this.history
      this.history = since.reduce(
        (history, { comparison, answer }) => remember(history, comparison, answer),
        restore(oldestFirst, own),
      )
      this.#knowsHistory = true
    } catch {
      if (this.history.length === 0) this.history = restore([], own)
    }
  }

  #describe(summary: Summary): void {
    this.summary = summary
    this.#learn(summary.progress)
    if (summary.latest_episode !== null) void this.#showEpisode(summary.latest_episode)
  }

  #learn(progress: Progress): void {
    this.#progress = progress
    if (this.#progress.waiting > 0) void this.refill()
  }

  async #showEpisode(episode: Episode): Promise<void> {
    if (this.#wantedEpisode === episode.clip.hash) return
    this.#wantedEpisode = episode.clip.hash
    try {
      const loaded = await this.#clips.clip(episode.clip)
      if (this.#wantedEpisode === episode.clip.hash) this.episode = { episode, loaded }
    } catch {
      this.#wantedEpisode = ''
    }
  }

  #count(change: number): void {
    if (this.#progress === null) return
    const { mine, answered, waiting } = this.#progress
    this.#progress = {
      ...this.#progress,
      mine: mine + change,
      answered: answered + change,
      waiting: waiting - change,
    }
  }

  #followOutbox(): void {
    const unsent = (this.#outbox?.unsent ?? []).filter(
      ({ comparison }) => comparison.experiment === this.name,
    )
    this.numUnsent = this.#outbox?.length ?? 0
    this.unsentIds = new Set(unsent.map(({ comparison }) => comparison.id))
    this.#unsentChange = unsent.reduce((sum, { change }) => sum + change, 0)
    if (this.#outbox !== null && this.numUnsent > 0) this.connection = this.#outbox.delivery
    else if (this.#outbox?.delivery === 'ok') this.connection = 'ok'
  }

  #reached(): void {
    if (this.connection === 'ok') return
    this.connection = 'ok'
    void this.#outbox?.flush()
    if (this.summary === null) void this.#readSummary()
  }

  #lost(error: unknown): void {
    if (error instanceof Refused) {
      this.failure = error
      return
    }
    this.connection = error instanceof SignedOut ? 'signed out' : 'away'
    clearTimeout(this.#retryTimer)
    this.#retryTimer = setTimeout(() => this.retry(), RETRY_MS)
  }
}

const withoutLease = (comparison: Comparison): Comparison => ({ ...comparison, lease: null })

const leasesOf = (at_hand: readonly LoadedComparison[]): string[] =>
  at_hand.flatMap(({ comparison }) => comparison.lease ?? [])

const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** A random UUID; `crypto.randomUUID` is there on secure origins only. */
export function newUuid(): string {
  if (typeof crypto.randomUUID === 'function') return crypto.randomUUID()
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  bytes[6] = (bytes[6]! & 0x0f) | 0x40
  bytes[8] = (bytes[8]! & 0x3f) | 0x80
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
  return [8, 12, 16, 20].reduceRight((text, at) => `${text.slice(0, at)}-${text.slice(at)}`, hex)
}
