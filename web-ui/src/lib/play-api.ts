/** What `rl-teacher play` shows: who plays, and the episodes that it makes meanwhile. */

import { API, getJson, Refused } from './api'
import type { Clip } from './types'

export interface Actor {
  name: string
  env_id: string
  agent: string
  step: number
  checkpoint: string
  is_training: boolean
  notes: string[]
}

export interface Bill {
  players: Actor[]
  num_episodes: number
  seed: number
  is_exploring: boolean
}

/** An episode of one of them; rewards are one per frame of the clip. */
export interface Side {
  clip: Clip
  num_steps: number
  end: 'terminated' | 'truncated' | 'cut'
  predicted_rewards: number[] | null
  true_rewards: number[] | null
  predicted_return: number | null
  true_return: number | null
}

export interface PlayedEpisode {
  number: number
  seed: number
  sides: Side[]
}

const ASK_AGAIN_MS = 300

export const getBill = (): Promise<Bill> => getJson(`${API}/play`)

/** An episode; while it is being made, it is asked for again. */
export async function getEpisode(number: number): Promise<PlayedEpisode> {
  for (;;) {
    try {
      return await getJson(`${API}/play/episodes/${number}`)
    } catch (error) {
      if (!(error instanceof Refused) || error.problem.status !== 409) throw error
      await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS))
    }
  }
}

/** The mean of what is known; null where nothing is. */
export function mean(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length
}

/** The lowest and highest of several curves, so that they can be drawn to one scale. */
export function rangeOf(curves: readonly (readonly number[] | null)[]): [number, number] | null {
  const values = curves.flatMap((curve) => curve ?? [])
  return values.length === 0 ? null : [Math.min(...values), Math.max(...values)]
}
