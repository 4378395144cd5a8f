/** The data in the page, which `rl-teacher circus` inserts. */

import type { Clip } from '../lib/api-types'
import { percent } from '../lib/format'

export interface Performance {
  experiment: string
  agent: string
  step: number
  /** The measure, averaged over episodes. */
  mean: number
  per_episode: number[]
}

export interface Act {
  title: string
  task: string
  env_id: string
  sentence: string
  measure: string
  /** Whether the measure is from 0 to 1. */
  is_share: boolean
  taught: Performance
  true_reward: Performance
  clips: [taught: Clip, trueReward: Clip]
}

export interface Circus {
  steps: number
  labels: number
  seed: number
  episodes: number
  acts: Act[]
}

/** Format the measure of an agent: 83 %, or 2.7. */
export const measure = (act: Act, { mean }: Performance): string =>
  act.is_share ? percent(mean) : mean.toFixed(1)
