/**
 * Answers on their way to the service. Each is written to IndexedDB before it is sent and taken out
 * when the service has acknowledged it, so that neither a reload nor a lost network loses one.
 */

import { Refused, ServerAway, SignedOut } from './api'
import type { Comparison, NewLabel, Problem, Receipt } from './types'

const DATABASE = 'rl-teacher'
const STORE = 'outbox'
const BATCH = 50
const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 15_000

/** A label that the service has not acknowledged yet. */
export interface Unsent {
  label: NewLabel
  /** Kept so that the answer can be shown again after a reload. */
  comparison: Comparison
  /** What it adds to the number of comparisons answered by this labeler: 1, 0 or -1. */
  change: number
  answered_at: string
}

interface Stored extends Unsent {
  order?: number
}

export interface OutboxOptions {
  send: (labels: NewLabel[]) => Promise<Receipt>
  /** After every change of what is unsent, or of whether sending works. */
  changed?: () => void
  accepted?: (labels: Unsent[]) => void
  refused?: (label: Unsent, problem: Problem) => void
  database?: IDBFactory | undefined
}

export type Delivery = 'ok' | 'away' | 'signed out'

export class Outbox {
  delivery: Delivery = 'ok'
  /** Whether unsent answers survive a reload; not so in some private windows. */
  isDurable = true

  #unsent: Stored[] = []
  #database: IDBDatabase | null = null
  #sending: Promise<void> | null = null
  #retry: ReturnType<typeof setTimeout> | undefined
  #failures = 0
  #isClosed = false

  private constructor(private readonly options: OutboxOptions) {}

  /** Opens the outbox with what an earlier page has left in it, and begins to send. */
  static async open(options: OutboxOptions): Promise<Outbox> {
    const outbox = new Outbox(options)
    try {
      outbox.#database = await openDatabase(options.database ?? indexedDB)
      outbox.#unsent = await all(outbox.#database)
    } catch {
      outbox.isDurable = false
    }
    void outbox.flush()
    return outbox
  }

  get length(): number {
    return this.#unsent.length
  }

  /** Oldest first. */
  get unsent(): readonly Unsent[] {
    return this.#unsent
  }

  /** Keeps an answer and sends it in the background. */
  async add(unsent: Unsent): Promise<void> {
    const stored: Stored = { ...unsent }
    this.#unsent.push(stored)
    this.options.changed?.()
    await this.#keep(stored)
    if (this.#retry === undefined) await this.flush()
  }

  /** Sends what is there now, without waiting for the next try. */
  flush(): Promise<void> {
    clearTimeout(this.#retry)
    this.#retry = undefined
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null
    })
    return this.#sending
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#retry)
    this.#database?.close()
  }

  async #sendAll(): Promise<void> {
    let size = BATCH
    while (this.#unsent.length > 0 && !this.#isClosed) {
      const batch = this.#unsent.slice(0, size)
      try {
        await this.#settle(batch, await this.options.send(batch.map(({ label }) => label)))
        this.#failures = 0
        this.delivery = 'ok'
      } catch (error) {
        if (!(error instanceof Refused)) return this.#waitAndRetry(error)
        if (size === 1) await this.#drop(batch[0]!, error.problem)
        // Note: one at a time, so that the label the service cannot read does not hold up others.
        size = 1
      }
      this.options.changed?.()
    }
  }

  async #settle(batch: Stored[], receipt: Receipt): Promise<void> {
    const accepted = new Set(receipt.accepted)
    const problems = new Map(receipt.rejected.map((one) => [one.request_id, one.problem]))
    const done = batch.filter(({ label }) => accepted.has(label.request_id))
    const refused = batch.filter(({ label }) => problems.has(label.request_id))
    if (done.length + refused.length === 0) {
      throw new ServerAway('The server acknowledged none of the answers.')
    }
    await this.#forget([...done, ...refused])
    this.options.accepted?.(done)
    for (const one of refused) this.options.refused?.(one, problems.get(one.label.request_id)!)
  }

  async #drop(stored: Stored, problem: Problem): Promise<void> {
    await this.#forget([stored])
    this.options.refused?.(stored, problem)
  }

  #waitAndRetry(error: unknown): void {
    this.delivery = error instanceof SignedOut ? 'signed out' : 'away'
    const longest = Math.min(FIRST_WAIT_MS * 2 ** this.#failures++, LONGEST_WAIT_MS)
    this.#retry = setTimeout(() => void this.flush(), longest * (0.75 + 0.25 * Math.random()))
    this.options.changed?.()
  }

  async #keep(stored: Stored): Promise<void> {
    if (this.#database === null) return
    try {
      stored.order = await write(this.#database, stored)
    } catch {
      this.isDurable = false
    }
  }

  async #forget(gone: Stored[]): Promise<void> {
    this.#unsent = this.#unsent.filter((stored) => !gone.includes(stored))
    const orders = gone.flatMap((stored) => (stored.order === undefined ? [] : [stored.order]))
    if (this.#database !== null && orders.length > 0) {
      // Note: a label that stays in the database is sent again, and the service knows its UUID.
      await remove(this.#database, orders).catch(() => undefined)
    }
  }
}

function openDatabase(factory: IDBFactory): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const opening = factory.open(DATABASE, 1)
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore(STORE, { keyPath: 'order', autoIncrement: true })
    }
    opening.onsuccess = () => resolve(opening.result)
    opening.onerror = () => reject(opening.error ?? new Error('IndexedDB cannot be opened.'))
    opening.onblocked = () => reject(new Error('IndexedDB is blocked.'))
  })
}

function all(database: IDBDatabase): Promise<Stored[]> {
  return new Promise((resolve, reject) => {
    const asked = database.transaction(STORE).objectStore(STORE).getAll()
    asked.onsuccess = () => resolve(asked.result as Stored[])
    asked.onerror = () => reject(asked.error ?? new Error('The outbox cannot be read.'))
  })
}

function write(database: IDBDatabase, stored: Stored): Promise<number> {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, 'readwrite')
    const asked = transaction.objectStore(STORE).add(plain(stored))
    // Note: else a page that is left in this moment takes the answer along.
    transaction.commit()
    transaction.oncomplete = () => resolve(asked.result as number)
    transaction.onabort = () => reject(transaction.error ?? new Error('The answer was not kept.'))
  })
}

function remove(database: IDBDatabase, orders: number[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, 'readwrite')
    for (const order of orders) transaction.objectStore(STORE).delete(order)
    transaction.oncomplete = () => resolve()
    transaction.onabort = () => reject(transaction.error ?? new Error('The outbox is read-only.'))
  })
}

/** A copy without order, which the database gives, and without what it cannot store. */
function plain(stored: Stored): Unsent {
  const { label, comparison, change, answered_at } = stored
  return JSON.parse(JSON.stringify({ label, comparison, change, answered_at })) as Unsent
}
