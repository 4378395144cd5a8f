/** What only an owner asks the service, and its shapes. */

import { API, getJson, pathOf, request, sendJson } from './api'
import type { Answer, Clip, Detail } from './types'

/** A part of a long list; `next` leads to the part after it, null at the end. */
export interface Page<Row> {
  rows: Row[]
  next: string | null
}

// --- comparisons ---

/** What a labeler says of a comparison now, in its own sides. */
export interface Vote {
  labeler: string
  answer: Answer
  /** Nothing learns from it as long as its labeler is left out. */
  is_excluded: boolean
}

/** A comparison in its own sides, and what everybody says of it now. */
export interface Judged {
  id: number
  asked_at_step: number
  asked_at: string | null
  /** Null as long as a clip cannot be shown. */
  left: Clip | null
  right: Clip | null
  answers: Vote[]
  num_labels: number
  num_wanted: number
  is_open: boolean
  is_disputed: boolean
  gold: Answer | null
}

export type Status = 'any' | 'answered' | 'open'
export type Sort = 'newest' | 'oldest' | 'labels' | 'disputed'

export interface Filter {
  status: Status
  sort: Sort
  answer: Answer | ''
  labeler: string
  disputed: boolean
  gold: boolean
}

export function getJudged(
  name: string,
  filter: Partial<Filter>,
  after: string | null,
  limit: number,
): Promise<Page<Judged>> {
  const query = new URLSearchParams({ limit: String(limit) })
  for (const [key, value] of Object.entries(filter)) if (value) query.set(key, String(value))
  if (after !== null) query.set('after', after)
  return getPage(`${pathOf(name)}/comparisons?${query}`, 'comparisons')
}

export const setGold = (id: number, answer: Answer | null): Promise<unknown> =>
  sendJson('PUT', `${API}/comparisons/${id}/gold`, { answer })

export const adjudicate = (id: number, answer: Answer): Promise<unknown> =>
  sendJson('POST', `${API}/comparisons/${id}/adjudicate`, { answer })

// --- quality ---

/** A share of some cases with its 95 % interval; null of none. */
export interface Share {
  share: number | null
  low: number | null
  high: number | null
  count: number
}

export interface LabelerQuality {
  id: number
  name: string
  num_answers: number
  median_seconds: number | null
  /** Of the answers for a side, those for the one that was shown on the left. */
  left_rate: Share
  self_consistency: Share
  gold_accuracy: Share
  agreement: Share
  reliability: number | null
  /** Oldest first. */
  periods: { start: string; num_answers: number; agreement: number | null }[]
}

export interface Alpha {
  alpha: number | null
  low: number | null
  high: number | null
}

export interface Quality {
  /** How far labelers agree beyond chance; 1 is always. */
  alpha: Alpha
  agreement: Share
  /** Comparisons that more than one labeler answered. */
  num_shared: number
  num_labels: number
  /** False where only the newest labels were looked at. */
  is_complete: boolean
  labelers: LabelerQuality[]
}

export const getQuality = (name: string): Promise<Quality> => getJson(`${pathOf(name)}/quality`)

// --- labelers ---

export interface Labeler {
  id: number
  name: string
  role: 'owner' | 'labeler' | 'teacher'
  created_at: string
  excluded_at: string | null
  num_labels: number
  last_label_at: string | null
}

export const getLabelers = async (): Promise<Labeler[]> =>
  (await getJson<{ labelers: Labeler[] }>(`${API}/labelers`)).labelers

export const changeLabeler = (
  id: number,
  change: 'exclude' | 'include' | 'revoke',
): Promise<unknown> => sendJson('POST', `${API}/labelers/${id}/${change}`, {})

export interface Invite {
  id: number
  hint: string
  name: string | null
  role: string
  experiment: string | null
  created_at: string
  expires_at: string
  used_at: string | null
  used_by: string | null
  revoked_at: string | null
}

export const getInvites = async (): Promise<Invite[]> =>
  (await getJson<{ invites: Invite[] }>(`${API}/invites`)).invites

export interface NewInvite {
  role: 'labeler' | 'owner'
  name: string | null
  experiment: string | null
  expires_at: string
}

/** The link is in this answer, and nowhere ever after. */
export const makeInvite = (invite: NewInvite): Promise<Invite & { link: string }> =>
  sendJson('POST', `${API}/invites`, invite)

export async function revokeInvite(id: number): Promise<void> {
  await request(`${API}/invites/${id}`, { method: 'DELETE' })
}

// --- the run ---

export interface Study {
  overlap: number
  overlap_labelers: number
  repeats: number
  gold: number
}

export interface Control {
  state: 'run' | 'pause' | 'stop'
  seconds_between: number | null
  target_labels: number | null
}

export interface OwnedDetail extends Detail {
  study: Study
  control: Control
}

/** What is left out stays as it is; null empties. */
export interface Change {
  instructions?: string
  target_labels?: number | null
  seconds_between?: number | null
  study?: Partial<Study>
}

export const changeExperiment = (name: string, change: Change): Promise<unknown> =>
  sendJson('PATCH', pathOf(name), change)

export const control = (name: string, state: Control['state']): Promise<unknown> =>
  sendJson('POST', `${pathOf(name)}/control`, { state })

// --- diagnostics, clips, events ---

export interface Liked {
  clip: Clip
  predicted_return: number | null
}

/** Comparisons whose predicted share for the left clip lies in one bin. */
export interface CalibrationBin {
  predicted: number | null
  observed: number | null
  count: number
}

export interface Diagnostics {
  step: number | null
  highest: Liked[]
  lowest: Liked[]
  calibration: CalibrationBin[]
}

export const getDiagnostics = (name: string): Promise<Diagnostics> => getJson(`${pathOf(name)}/diagnostics`)

export const getClips = (
  envId: string,
  after: string | null,
  limit: number,
): Promise<Page<Clip>> =>
  getPage(`${API}/environments/${encodeURIComponent(envId)}/clips?${paging(after, limit)}`, 'clips')

export interface AuditEvent {
  id: number
  created_at: string
  kind: string
  actor: string | null
  experiment: string | null
  details: Record<string, unknown>
}

export const getEvents = (
  experiment: string,
  after: string | null,
  limit: number,
): Promise<Page<AuditEvent>> =>
  getPage(
    `${API}/audit?experiment=${encodeURIComponent(experiment)}&${paging(after, limit)}`,
    'events',
  )

export const exportPath = (name: string, format: 'jsonl' | 'parquet'): string =>
  `${pathOf(name)}/export?format=${format}`

function paging(after: string | null, limit: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) })
  if (after !== null) query.set('after', after)
  return query
}

/** Reads a part of a list that the service names by what is in it. */
async function getPage<Row>(path: string, key: string): Promise<Page<Row>> {
  const answer = await getJson<Record<string, unknown>>(path)
  return { rows: answer[key] as Row[], next: (answer.next as string | null) ?? null }
}
