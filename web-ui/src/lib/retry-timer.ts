/** The timer of reads that are repeated after a failure. */

export const RETRY_MS = 3_000

export class RetryTimer {
  isStopped = false
  #timer: ReturnType<typeof setTimeout> | undefined

  /** Call a function after a delay, in place of the one that was scheduled before. */
  schedule(read: () => unknown, delay_ms = RETRY_MS): void {
    this.cancel()
    if (!this.isStopped) this.#timer = setTimeout(read, delay_ms)
  }

  cancel(): void {
    clearTimeout(this.#timer)
  }

  /** Cancel the scheduled call and ignore later ones: a read may still fail after its owner is destroyed. */
  stop(): void {
    this.isStopped = true
    this.cancel()
  }
}

/** Read once, and again after a while if that fails; return a function that stops. */
export function readUntilDone(read: () => Promise<unknown>): () => void {
  const timer = new RetryTimer()
  const attempt = () => void read().catch(() => timer.schedule(attempt))
  attempt()
  return () => timer.stop()
}
