/** Text of a live region: what a screen reader announces. */

/** Messages within this time are announced together. */
const GATHER_MS = 100
/** A message is removed after this time, so that it is not read later as the current state. */
const CLEAR_MS = 5_000

export class Announcer {
  text = $state('')
  #pending: string[] = []
  #timer: ReturnType<typeof setTimeout> | undefined

  announce(message: string): void {
    this.#pending.push(message)
    // An equal text would not be announced again, so the region is empty in between.
    this.text = ''
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#show(), GATHER_MS)
  }

  #show(): void {
    this.text = this.#pending.join(' ')
    this.#pending = []
    this.#timer = setTimeout(() => (this.text = ''), CLEAR_MS)
  }

  stop(): void {
    clearTimeout(this.#timer)
  }
}
