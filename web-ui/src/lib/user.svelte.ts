/** Who this browser is: pages show an owner more than a labeler. */

import { getMe } from './api'
import type { Me } from './types'

class CurrentUser {
  me = $state.raw<Me | null>(null)
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

  async #read(): Promise<void> {
    try {
      this.me = await getMe()
      this.failure = null
    } catch (error) {
      this.failure = error
    }
  }
}

export const currentUser = new CurrentUser()
