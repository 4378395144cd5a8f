/** The signed-in user; owners see more pages than labelers. */

import { getCurrentUser, ServerUnreachable } from './api'
import type { CurrentUser } from './api-types'
import { RetryTimer } from './retry-timer'

class UserState {
  me = $state.raw<CurrentUser | null>(null)
  failure = $state.raw<unknown>(null)
  #reading: Promise<void> | null = null
  readonly #retryTimer = new RetryTimer()

  get isOwner(): boolean {
    return this.me?.role === 'owner'
  }

  get isKnown(): boolean {
    return this.me !== null
  }

  /** Whether the service has answered, perhaps with an error. */
  get isRead(): boolean {
    return this.isKnown || (this.failure !== null && !(this.failure instanceof ServerUnreachable))
  }

  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = null))
    return this.#reading
  }

  /**
   * Ask the service who is signed in.
   *
   * @throws ServerUnreachable, SignedOut or RequestRejected.
   */
  async readMe(): Promise<CurrentUser> {
    await this.read()
    if (this.failure !== null || this.me === null) throw this.failure
    return this.me
  }

  async #read(): Promise<void> {
    this.#retryTimer.cancel()
    try {
      this.me = await getCurrentUser()
      this.failure = null
    } catch (error) {
      this.failure = error
      if (!this.isKnown && error instanceof ServerUnreachable) this.#retryTimer.schedule(() => this.read())
    }
  }
}

export const currentUser = new UserState()
