/**
 * Labels on their way to the service. Each is stored in IndexedDB before it is sent and removed when
 * the service has acknowledged it, so that neither a reload nor a network failure loses one. Labels of
 * other labelers who used this browser, and of other homes whose service had this address, stay stored
 * until they are signed in again.
 */

import { RequestRejected, ServerUnreachable, SignedOut } from './api'
import type { Answer, Comparison, CurrentUser, LabelReceipt, LabelSubmission, Problem } from './api-types'
import { Resource } from './resource.svelte'

const DATABASE = 'rl-teacher'
const STORE = 'outbox'
const BATCH_SIZE = 50
/** How long a check of who is signed in is valid. */
const CHECK_MS = 10_000
/** Statuses of rejections because of the content of the labels. */
const CONTENT_STATUSES = [400, 413, 422]

/** A labeler; names are unique within a home. */
export type HomeLabeler = Pick<CurrentUser, 'name' | 'home'>

/** A label that the service has not acknowledged yet. */
export interface UnsentLabel {
  label: LabelSubmission
  /** Kept so that the label can be shown again after a reload. */
  comparison: Comparison
  /** Change of the number of comparisons labelled by this labeler: 1, 0 or -1. */
  change: number
  answered_at: string
}

interface StoredLabel extends UnsentLabel {
  /** Key in the database; absent if the label could not be stored. */
  order?: number
  labeler: HomeLabeler
}

export interface OutboxOptions {
  /** The labeler whose labels are shown and sent. */
  labeler: HomeLabeler
  /** Read who is signed in: another tab may have signed in under another name. */
  readLabeler: () => Promise<HomeLabeler>
  send: (labels: LabelSubmission[]) => Promise<LabelReceipt>
  /** Called after every change of the unsent labels. */
  changed?: () => void
  accepted?: (labels: UnsentLabel[]) => void
  /** `stored` is the answer that was given in another tab and kept instead. */
  rejected?: (label: UnsentLabel, problem: Problem, stored: Answer | null) => void
  /** The service's advice to the labeler. */
  warned?: (warning: string) => void
  database?: IDBFactory | undefined
}

export class Outbox {
  /** Whether unsent labels survive a reload; false in some private windows. */
  isDurable = true

  #unsent: StoredLabel[] = []
  #database: IDBDatabase | null = null
  /** Resolves when all labels are in the database. */
  #writing: Promise<void> | null = null
  readonly #delivery = new Resource(() => this.#sendAll(), {
    // A closed page delivers only what the browser does not keep.
    retries: () => !this.#isClosed || !this.isDurable,
    isInBackground: true,
  })
  #isClosed = false
  #checked_ms = -Infinity

  private constructor(private readonly options: OutboxOptions) {}

  /** Open the outbox with the labels that an earlier page left, and start sending. */
  static async open(options: OutboxOptions): Promise<Outbox> {
    const outbox = new Outbox(options)
    try {
      outbox.#database = await openDatabase(options.database ?? indexedDB)
      outbox.#unsent = await readAll(outbox.#database, options.labeler)
    } catch {
      outbox.isDurable = false
    }
    void outbox.flush()
    return outbox
  }

  /** Why the latest delivery failed; null if it did not. */
  get failure(): unknown {
    return this.#delivery.failure
  }

  get length(): number {
    return this.#unsent.length
  }

  /** Unsent labels, oldest first. */
  get unsent(): readonly UnsentLabel[] {
    return this.#unsent
  }

  /** Store a label and send it in the background. */
  async add(unsent: UnsentLabel): Promise<void> {
    const stored: StoredLabel = { ...unsent, labeler: this.options.labeler }
    this.#unsent.push(stored)
    this.options.changed?.()
    await (this.#writing = this.#store(stored))
    // After a failure, it is sent with the others.
    if (this.failure === null && !this.#isClosed) await this.flush()
  }

  /** Send all labels now instead of waiting for the next retry. */
  flush(): Promise<void> {
    return this.#delivery.read()
  }

  /**
   * Send all labels a last time, then close the database: it keeps those that cannot be sent. If the
   * browser does not store them, they are sent later.
   */
  close(): void {
    this.#isClosed = true
    void this.flush().finally(() => this.#database?.close())
  }

  async #sendAll(): Promise<void> {
    let size = BATCH_SIZE
    while (this.#unsent.length > 0) {
      const isConfirmed = this.failure === null && performance.now() - this.#checked_ms < CHECK_MS
      if (!isConfirmed) await this.confirmLabeler()
      const batch = this.#unsent.slice(0, size)
      try {
        await this.#applyReceipt(batch, await this.options.send(batch.map(({ label }) => label)))
      } catch (error) {
        const isAboutContent =
          error instanceof RequestRejected && CONTENT_STATUSES.includes(error.problem.status)
        if (!isAboutContent) throw error
        if (size === 1) await this.#drop(batch[0]!, error.problem)
        // Send one at a time, so that an unreadable label does not block the others.
        size = 1
      }
    }
  }

  /**
   * Ask the service who is signed in.
   *
   * @throws SignedOut if it is another labeler; also ServerUnreachable or RequestRejected.
   */
  async confirmLabeler(): Promise<void> {
    const { labeler, readLabeler } = this.options
    if (!isSame(await readLabeler(), labeler)) {
      throw new SignedOut(`Another account is signed in. Sign in as ${labeler.name}.`)
    }
    this.#checked_ms = performance.now()
  }

  async #applyReceipt(batch: StoredLabel[], receipt: LabelReceipt): Promise<void> {
    const accepted = new Set(receipt.accepted)
    const rejections = new Map(receipt.rejected.map((one) => [one.request_id, one]))
    const done = batch.filter(({ label }) => accepted.has(label.request_id))
    const rejected = batch.filter(({ label }) => rejections.has(label.request_id))
    if (done.length + rejected.length === 0) {
      throw new ServerUnreachable('The server did not acknowledge any label.')
    }
    if (rejected.length > 0) {
      // Labels of one account are rejected while another one is signed in.
      await this.confirmLabeler()
    }
    // All reports come at once: in between, labels would be neither unsent nor accepted, or both.
    const removing = this.#remove([...done, ...rejected])
    this.options.accepted?.(done)
    for (const one of rejected) {
      const { problem, stored_answer: stored } = rejections.get(one.label.request_id)!
      this.options.rejected?.(one, problem, stored ?? null)
    }
    if (receipt.warning) this.options.warned?.(receipt.warning)
    this.options.changed?.()
    await removing
  }

  async #drop(stored: StoredLabel, problem: Problem): Promise<void> {
    const removing = this.#remove([stored])
    this.options.rejected?.(stored, problem, null)
    this.options.changed?.()
    await removing
  }

  async #store(stored: StoredLabel): Promise<void> {
    if (this.#database === null) return
    try {
      stored.order = await write(this.#database, stored)
    } catch {
      this.isDurable = false
      this.options.changed?.()
    }
  }

  async #remove(gone: StoredLabel[]): Promise<void> {
    this.#unsent = this.#unsent.filter((stored) => !gone.includes(stored))
    // A label may be acknowledged before it is in the database, which assigns its key.
    await this.#writing
    const orders = gone.flatMap((stored) => (stored.order === undefined ? [] : [stored.order]))
    if (this.#database !== null && orders.length > 0) {
      // A label left in the database is sent again; the service recognises its UUID.
      await remove(this.#database, orders).catch(() => undefined)
    }
  }
}

/** Count the labels of a labeler that this browser keeps. */
export async function countUnsent(labeler: HomeLabeler, factory = indexedDB): Promise<number> {
  const database = await openDatabase(factory)
  try {
    return (await readAll(database, labeler)).length
  } finally {
    database.close()
  }
}

const isSame = (one: HomeLabeler, other: HomeLabeler): boolean =>
  one.name === other.name && one.home === other.home

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

function readAll(database: IDBDatabase, labeler: HomeLabeler): Promise<StoredLabel[]> {
  return new Promise((resolve, reject) => {
    const request = database.transaction(STORE).objectStore(STORE).getAll()
    request.onsuccess = () => {
      const all = request.result as StoredLabel[]
      resolve(all.filter((stored) => isSame(stored.labeler, labeler)))
    }
    request.onerror = () => reject(request.error ?? new Error('The outbox cannot be read.'))
  })
}

function write(database: IDBDatabase, stored: StoredLabel): Promise<number> {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, 'readwrite')
    const request = transaction.objectStore(STORE).add(toRecord(stored))
    // Commit at once: a page that is closed now would abort an open transaction.
    transaction.commit()
    transaction.oncomplete = () => resolve(request.result as number)
    transaction.onabort = () => reject(transaction.error ?? new Error('The label could not be stored.'))
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

/** Copy a label without `order`, which the database assigns, and without reactive proxies. */
function toRecord({ order: _, ...stored }: StoredLabel): StoredLabel {
  return JSON.parse(JSON.stringify(stored)) as StoredLabel
}

/** Return a random UUID; `crypto.randomUUID` exists on secure origins only. */
export function newRequestId(): string {
  if (typeof crypto.randomUUID === 'function') return crypto.randomUUID()
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  bytes[6] = (bytes[6]! & 0x0f) | 0x40
  bytes[8] = (bytes[8]! & 0x3f) | 0x80
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
  return [8, 12, 16, 20].reduceRight((text, at) => `${text.slice(0, at)}-${text.slice(at)}`, hex)
}
