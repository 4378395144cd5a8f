/** Requests to `rl-teacher play`, and statistics of the episodes it plays. */

import { API, getJson, RequestRejected } from './api'
import type { PlayedEpisode, PlaySession } from './api-types'

const POLL_MS = 300
const NOT_READY = 409

export const getPlaySession = (): Promise<PlaySession> => getJson(`${API}/play`)

/** Fetch an episode; poll while it is still being played. */
export async function getEpisode(number: number): Promise<PlayedEpisode> {
  for (;;) {
    try {
      return await getJson(`${API}/play/episodes/${number}`)
    } catch (error) {
      if (!(error instanceof RequestRejected) || error.problem.status !== NOT_READY) throw error
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    }
  }
}

/** Compute the mean of the values that are not null, or null if there are none. */
export function mean(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length
}

/** Return the smallest and largest value of several curves, for a common scale. */
export function rangeOf(
  curves: readonly (readonly (number | null)[] | null)[],
): [number, number] | null {
  const values = curves.flatMap((curve) => curve ?? []).filter((value) => value !== null)
  return values.length === 0 ? null : [Math.min(...values), Math.max(...values)]
}
