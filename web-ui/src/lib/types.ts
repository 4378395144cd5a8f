/** The service's shapes, as `/api/openapi.json` describes them. */

/** One of the four answers; sides are those shown. */
export type Answer = 'left' | 'right' | 'equal' | 'cannot_tell'

export interface Clip {
  hash: string
  kind: 'poses' | 'video'
  url: string
  scene_url: string | null
  num_frames: number
  fps: number
  seconds: number
}

export interface Comparison {
  id: number
  experiment: string
  asked_at_step: number
  left: Clip
  right: Clip
  answer: Answer | null
  /** Says that this comparison was given to me to answer; null where it was only looked up. */
  lease?: string | null
  lease_expires_at?: string | null
}

/** Who this browser is, by its credential. */
export interface Me {
  name: string
  role: 'owner' | 'labeler' | 'teacher'
}

export interface Renewal {
  renewed: Record<string, string>
  lost: string[]
}

export interface Progress {
  /** Comparisons whose current label is this labeler's. */
  mine: number
  answered: number
  asked: number
  target: number | null
  waiting: number
  /** Why nothing waits, and when the next comparison comes. */
  message: string
}

export type Phase =
  | 'starting'
  | 'random'
  | 'waiting'
  | 'fitting'
  | 'training'
  | 'paused'
  | 'finished'
  | 'stopped'
  | 'lost'

export interface Episode {
  clip: Clip
  /** One per frame of the clip. */
  predicted_rewards: number[] | null
  true_return: number | null
  step: number
}

export interface Summary {
  name: string
  env_id: string
  phase: Phase
  message: string
  step: number
  num_steps: number
  steps_per_second: number | null
  progress: Progress
  sparkline: number[]
  instructions: string
  updated_at: string | null
  is_running: boolean
  latest_episode: Episode | null
}

export type Figures = Record<string, number | string | null>

export interface Detail extends Summary {
  config: Record<string, unknown>
  metrics: Figures
}

export type MetricsRow = Figures & { id: number; step: number }

export interface PastLabel {
  request_id: string
  comparison: Comparison
  answered_at: string
}

/** A label on its way to the service; answer null takes an earlier one back. */
export interface NewLabel {
  request_id: string
  comparison_id: number
  answer: Answer | null
  /** Under which the comparison was given. */
  lease: string | null
  /** Hash of the clip that was shown on the left. */
  left_hash: string
  response_ms: number | null
  details: Record<string, unknown> | null
}

/** Every error of the service: RFC 9457. */
export interface Problem {
  type: string
  title: string
  status: number
  detail: string
}

export interface Receipt {
  accepted: string[]
  rejected: { request_id: string; problem: Problem }[]
}
