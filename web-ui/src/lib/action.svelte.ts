/** An action of the user that the service carries out: whether it is under way, and why it failed. */

import { errorText } from './format'

export class Action {
  isBusy = $state(false)
  /** Why the last attempt failed, or an empty string. */
  error = $state('')

  /** Perform an action unless one is under way; return whether it succeeded. */
  async run(perform: () => Promise<unknown>): Promise<boolean> {
    if (this.isBusy) return false
    this.isBusy = true
    this.error = ''
    try {
      await perform()
    } catch (error) {
      this.error = errorText(error)
    }
    this.isBusy = false
    return this.error === ''
  }
}
