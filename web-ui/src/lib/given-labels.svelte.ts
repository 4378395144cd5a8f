/** The labels given on this page: their delivery, the recent ones, and their effect on the progress. */

import type * as api from './api'
import type { Answer, Comparison, LabelSubmission, PastLabel } from './api-types'
import { answerTo, remember, restore, takeBack, without, type History } from './history'
import { newRequestId, Outbox, type UnsentLabel } from './outbox'
import type { LabellingProgress } from './progress.svelte'
import { Resource } from './resource.svelte'
import type { currentUser } from './user.svelte'

/** Labels to exclude when fetching, in case the service has not processed them yet. */
const NUM_RECENT_IDS = 12

export interface GivenLabelsOptions {
  /** Name of the experiment. */
  name: string
  service: Pick<typeof api, 'getMyLabels' | 'postLabels'>
  user: Pick<typeof currentUser, 'me' | 'readMe'>
  progress: LabellingProgress
  /** A label was rejected, or the service has advice. */
  onnotice: (message: string) => void
  database: IDBFactory | undefined
  now_ms: () => number
}

export class GivenLabels {
  history = $state.raw<History>([])
  unsentIds = $state.raw<ReadonlySet<number>>(new Set())
  numUnsent = $state(0)
  /** Whether the browser keeps unsent labels when the page is closed. */
  isDurable = $state(true)

  #outbox = $state.raw<Outbox | null>(null)
  #isClosed = false
  #labelledIds = new Set<number>()
  /** Comparisons whose labels were withdrawn: the history that was requested before still has them. */
  #withdrawnIds = new Set<number>()
  readonly #recent: Resource<{ known: PastLabel[]; unsent: readonly UnsentLabel[] }>
  /** Rankings of which the labels of the history are a part, by comparison. */
  #rankings = new Map<number, string>()

  constructor(private readonly options: GivenLabelsOptions) {
    const request = async () => {
      const unsent = this.#ownUnsent()
      return { unsent, known: await options.service.getMyLabels(options.name) }
    }
    this.#recent = new Resource(request, { received: ({ known, unsent }) => this.#receive(known, unsent) })
  }

  get isOpen(): boolean {
    return this.#outbox !== null
  }

  /** Why labels are not delivered; null if there are none, or they are under way. */
  get failure(): unknown {
    return this.numUnsent > 0 ? (this.#outbox?.failure ?? null) : null
  }

  /**
   * Open the outbox with the labels that an earlier page of this labeler left.
   *
   * @throws ServerUnreachable, SignedOut or RequestRejected if the labeler is not known.
   */
  async open(): Promise<void> {
    const { service, user, progress, onnotice, database } = this.options
    const { name, home } = user.me ?? (await user.readMe())
    if (this.#isClosed) return
    const outbox = await Outbox.open({
      labeler: { name, home },
      readLabeler: () => user.readMe(),
      send: (labels) => service.postLabels(labels),
      changed: () => this.#followOutbox(),
      accepted: (labels) =>
        progress.acknowledge(this.#own(labels).reduce((sum, one) => sum + one.change, 0)),
      rejected: (label, { detail }, stored) => {
        for (const own of this.#own([label])) this.#followRejection(own, stored)
        onnotice(`The label of comparison ${label.comparison.number} was rejected: ${detail}`)
      },
      warned: onnotice,
      database,
    })
    if (this.#isClosed) return outbox.close()
    this.#outbox = outbox
    this.#followOutbox()
    this.history = restore([], this.#ownUnsent())
  }

  /** Make sure that the labeler of this page is still signed in; see `Outbox.confirmLabeler`. */
  async confirmLabeler(): Promise<void> {
    await this.#outbox?.confirmLabeler()
  }

  close(): void {
    this.#isClosed = true
    this.#recent.stop()
    this.#outbox?.close()
  }

  /** Send unsent labels now. */
  retry(): void {
    void this.#outbox?.flush()
  }

  /** Comparisons whose labels the service may not have processed yet. */
  get excludedIds(): number[] {
    const unsent = this.#outbox?.unsent.filter(({ label }) => label.answer !== null) ?? []
    const recent = [...this.#labelledIds].slice(-NUM_RECENT_IDS)
    return [...unsent.map(({ comparison }) => comparison.id), ...recent]
  }

  /** @param more is recorded with the label, such as the response time. */
  give(comparison: Comparison, answer: Answer, more: Partial<LabelSubmission>): void {
    const isNew = answerTo(this.history, comparison.id) === null && comparison.answer === null
    this.#send(comparison, { answer, lease: comparison.lease ?? null, ...more }, isNew ? 1 : 0)
    this.history = remember(this.history, withoutLease(comparison), answer)
    this.#labelledIds.add(comparison.id)
    this.#rankings.delete(comparison.id)
    this.options.progress.recordLabel(this.options.now_ms())
  }

  /** Withdraw the newest label; return its comparison, or null if there is none. */
  withdraw(): Comparison | null {
    const { history, taken } = takeBack(this.history)
    if (taken === null) return null
    const comparison = { ...taken.comparison, answer: null }
    this.history = history
    this.#labelledIds.delete(comparison.id)
    this.#withdrawnIds.add(comparison.id)
    this.#send(comparison, { answer: null }, -1)
    return comparison
  }

  /** The ranking that the newest label belongs to, or null. */
  get newestRanking(): string | null {
    return this.#rankings.get(this.history.at(-1)?.comparison.id ?? 0) ?? null
  }

  /** Replace the history after the service has stored or withdrawn a ranking. */
  readRankings(): Promise<void> {
    this.history = []
    this.#withdrawnIds.clear()
    return this.readHistory()
  }

  readHistory(): Promise<void> {
    return this.#recent.read()
  }

  #receive(known: readonly PastLabel[], unsent: readonly UnsentLabel[]): void {
    const labels = known.filter(({ comparison }) => !this.#withdrawnIds.has(comparison.id))
    this.#rankings = new Map(
      labels.flatMap(({ comparison, ranking }) => (ranking ? [[comparison.id, ranking]] : [])),
    )
    const oldestFirst = labels.map(({ comparison }) => comparison).reverse()
    // Labels given while the request was under way come last.
    this.history = this.history.reduce(
      (history, { comparison, answer }) => remember(history, comparison, answer),
      restore(oldestFirst, unsent),
    )
  }

  #send(comparison: Comparison, more: Partial<LabelSubmission>, change: number): void {
    const { answer = null } = more
    const label: LabelSubmission = {
      request_id: newRequestId(),
      comparison_id: comparison.id,
      left_hash: comparison.left.hash,
      lease: null,
      response_ms: null,
      details: null,
      ...more,
      answer,
    }
    const answered_at = new Date().toISOString()
    const answered: Comparison = { ...withoutLease(comparison), answer }
    void this.#outbox?.add({ label, comparison: answered, change, answered_at })
  }

  /** @param stored is the answer that was given in another tab and kept instead. */
  #followRejection({ comparison, label, change }: UnsentLabel, stored: Answer | null): void {
    if (stored !== null) {
      this.history = remember(this.history, comparison, stored)
      this.options.progress.acknowledge(change)
    } else if (label.answer !== null) {
      this.history = without(this.history, comparison.id)
      this.#labelledIds.delete(comparison.id)
    }
  }

  /** Select the labels of this experiment: the outbox has those of all. */
  #own(labels: readonly UnsentLabel[]): readonly UnsentLabel[] {
    return labels.filter(({ comparison }) => comparison.experiment === this.options.name)
  }

  #ownUnsent(): readonly UnsentLabel[] {
    return this.#own(this.#outbox?.unsent ?? [])
  }

  #followOutbox(): void {
    const unsent = this.#ownUnsent()
    this.numUnsent = this.#outbox?.length ?? 0
    this.unsentIds = new Set(unsent.map(({ comparison }) => comparison.id))
    this.options.progress.unsentChange = unsent.reduce((sum, { change }) => sum + change, 0)
    this.isDurable = this.#outbox?.isDurable ?? true
  }
}

const withoutLease = (comparison: Comparison): Comparison => ({ ...comparison, lease: null })
