/** A value that is read from the service: again after failures and at intervals, but not by a hidden page. */

import { ServerUnreachable } from './api'

const MIN_RETRY_MS = 500
const MAX_RETRY_MS = 15_000

export interface ResourceOptions<T> {
  /** Called with each value. */
  received?: (value: T) => void
  /** Time from a read to the next one; null to read once. */
  refresh_ms?: number | null
  /** Whether a read is repeated after a failure; otherwise, only if the service cannot be reached. */
  retries?: (error: unknown) => boolean
  /** Whether a hidden page reads, too. */
  isInBackground?: boolean
}

export class Resource<T> {
  value = $state.raw<T | null>(null)
  /** Why the latest read failed; null if it did not. */
  failure = $state.raw<unknown>(null)
  isReading = $state(false)
  refresh_ms: number | null
  isStopped = false
  #reading: Promise<void> | null = null
  #mustReadAgain = false
  #numFailures = 0
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    private readonly request: () => Promise<T>,
    private readonly options: ResourceOptions<T> = {},
  ) {
    this.refresh_ms = options.refresh_ms ?? null
  }

  /** Read, and return a function that stops. */
  start(): () => void {
    this.isStopped = false
    void this.read()
    return () => this.stop()
  }

  /** Stop reading, and ignore the response to a pending request. */
  stop(): void {
    this.isStopped = true
    clearTimeout(this.#timer)
  }

  /** Read now, or after the read under way, whose response may be older, unless it fails. Never rejects. */
  read(): Promise<void> {
    if (this.isStopped) return Promise.resolve()
    this.#mustReadAgain = true
    this.#reading ??= this.#readAll().finally(() => (this.#reading = null))
    return this.#reading
  }

  /** Read after a while, unless another read comes first. */
  schedule(delay_ms: number): void {
    clearTimeout(this.#timer)
    if (!this.isStopped) this.#timer = setTimeout(() => this.#readVisibly(), delay_ms)
  }

  async #readAll(): Promise<void> {
    this.isReading = true
    do {
      this.#mustReadAgain = false
      await this.#readOnce()
    } while (this.#mustReadAgain && this.failure === null && !this.isStopped)
    this.isReading = false
  }

  async #readOnce(): Promise<void> {
    clearTimeout(this.#timer)
    const { received, retries = isTemporary } = this.options
    try {
      const value = await this.request()
      if (this.isStopped) return
      this.value = value
      this.failure = null
      this.#numFailures = 0
      received?.(value)
    } catch (error) {
      if (this.isStopped) return
      this.failure = error
      if (retries(error)) return this.schedule(retryDelay(this.#numFailures++))
    }
    if (this.refresh_ms !== null) this.schedule(this.refresh_ms)
  }

  #readVisibly(): void {
    if (this.options.isInBackground || !globalThis.document?.hidden) return void this.read()
    document.addEventListener('visibilitychange', () => this.#readVisibly(), { once: true })
  }
}

const isTemporary = (error: unknown): boolean => error instanceof ServerUnreachable

/** Double the delay with each failure; pages that lost the service together return one by one. */
const retryDelay = (numFailures: number): number =>
  Math.min(MIN_RETRY_MS * 2 ** numFailures, MAX_RETRY_MS) * (0.75 + 0.25 * Math.random())
