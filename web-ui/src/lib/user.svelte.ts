/** The signed-in user; owners see more pages than labelers. */

import { getCurrentUser, ServerUnreachable } from './api'
import type { CurrentUser } from './api-types'
import { Resource } from './resource.svelte'

class UserState extends Resource<CurrentUser> {
  constructor() {
    super(getCurrentUser, { retries: (error) => !currentUser.isKnown && error instanceof ServerUnreachable })
  }

  get me(): CurrentUser | null {
    return this.value
  }

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
}

export const currentUser = new UserState()
