/** The signed-in user; owners see more pages than labelers. */

import { getCurrentUser } from './api'
import type { CurrentUser } from './api-types'

class UserState {
  me = $state.raw<CurrentUser | null>(null)
  failure = $state.raw<unknown>(null)
  #reading: Promise<void> | null = null

  get isOwner(): boolean {
    return this.me?.role === 'owner'
  }

  get isKnown(): boolean {
    return this.me !== null
  }

  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => (this.#reading = null))
    return this.#reading
  }

  /**
   * Ask the service for the name.
   *
   * @throws ServerUnreachable, SignedOut or RequestRejected.
   */
  async readName(): Promise<string> {
    await this.read()
    if (this.failure !== null || this.me === null) throw this.failure
    return this.me.name
  }

  async #read(): Promise<void> {
    try {
      this.me = await getCurrentUser()
      this.failure = null
    } catch (error) {
      this.failure = error
    }
  }
}

export const currentUser = new UserState()
