/** The window that shows the agent's latest episode, beside the labelling page. */

import { watchPath } from './router.svelte'

/** Windows that this page has opened, by experiment. */
const windows = new Map<string, Window>()

/** Open the window of an experiment, or bring it to the front; return whether it is open. */
export function openWatchWindow(name: string): boolean {
  const known = windows.get(name)
  // With a name, it is found again after the labelling page was reloaded.
  const shown = known?.closed === false
    ? known
    : open(watchPath(name), `watch ${name}`, 'popup,width=560,height=600')
  if (shown === null) return false
  windows.set(name, shown)
  shown.focus()
  return true
}
