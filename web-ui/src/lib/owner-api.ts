/** Requests that only owners may make. */

import { API, getJson, pathOf, request, sendJson } from './api'
import type {
  Answer,
  AuditEvent,
  AuditEventPage,
  Clip,
  ComparisonsOfClip,
  EnvironmentClipPage,
  Episode,
  EpisodeList,
  ExperimentUpdate,
  Invite,
  InviteList,
  Labeler,
  LabelerAnswer,
  LabelerList,
  LabelQuality,
  NewInvite,
  NewInviteRequest,
  OwnerExperimentDetail,
  PredictorDiagnostics,
  RankedComparison,
  Ranking,
  ReviewedComparison,
  ReviewedComparisonPage,
  RunState,
  ComparisonOrder,
} from './api-types'

/** A page of a long list; `next` continues it and is null at the end. */
export interface Page<Row> {
  rows: Row[]
  next: string | null
}

export const getOwnerExperiment = (name: string): Promise<OwnerExperimentDetail> =>
  getJson(pathOf(name))

// --- comparisons ---

/** A comparison in a list; the page adds the owner's own label before the list is reloaded. */
export type ListedComparison = Omit<ReviewedComparison, 'answers'> & {
  answers: Pick<LabelerAnswer, 'labeler' | 'answer' | 'is_excluded'>[]
}

export type Status = 'any' | 'answered' | 'open'

export interface Filter {
  status: Status
  sort: ComparisonOrder
  answer: Answer | ''
  labeler: string
  disputed: boolean
  gold: boolean
}

export async function getComparisons(
  name: string,
  filter: Partial<Filter>,
  after: string | null,
  limit: number,
): Promise<Page<ListedComparison>> {
  const query = pageQuery(after, limit)
  for (const [key, value] of Object.entries(filter)) if (value) query.set(key, String(value))
  const path = `${pathOf(name)}/comparisons?${query}`
  const { comparisons, next } = await getJson<ReviewedComparisonPage>(path)
  return { rows: comparisons, next }
}

export const setGold = (id: number, answer: Answer | null): Promise<unknown> =>
  sendJson('PUT', `${API}/comparisons/${id}/gold`, { answer })

/** Answer as the owner; null withdraws that answer. */
export const adjudicate = (id: number, answer: Answer | null): Promise<unknown> =>
  sendJson('POST', `${API}/comparisons/${id}/adjudicate`, { answer })

export const exportPath = (name: string, format: 'jsonl' | 'parquet'): string =>
  `${pathOf(name)}/export?format=${format}`

export const getRanking = (name: string): Promise<Ranking> => getJson(`${pathOf(name)}/ranking`)

/** Fetch the comparisons of a clip, with the probabilities of their answers in the ranking. */
export const getComparisonsOf = async (name: string, hash: string): Promise<RankedComparison[]> =>
  (await getJson<ComparisonsOfClip>(`${pathOf(name)}/ranking/${hash}`)).comparisons

// --- labelers and invites ---

export const getQuality = (name: string): Promise<LabelQuality> => getJson(`${pathOf(name)}/quality`)

export const getLabelers = async (): Promise<Labeler[]> =>
  (await getJson<LabelerList>(`${API}/labelers`)).labelers

export const changeLabeler = (
  id: number,
  action: 'exclude' | 'include' | 'revoke',
): Promise<unknown> => sendJson('POST', `${API}/labelers/${id}/${action}`, {})

export const getInvites = async (): Promise<Invite[]> =>
  (await getJson<InviteList>(`${API}/invites`)).invites

/** Create an invite; its link is in this response only. */
export const createInvite = (invite: NewInviteRequest): Promise<NewInvite> =>
  sendJson('POST', `${API}/invites`, invite)

export async function revokeInvite(id: number): Promise<void> {
  await request(`${API}/invites/${id}`, { method: 'DELETE' })
}

// --- experiments ---

export const renameExperiment = (name: string, newName: string): Promise<unknown> =>
  sendJson('POST', `${pathOf(name)}/rename`, { name: newName })

export const setArchived = (name: string, isArchived: boolean): Promise<unknown> =>
  sendJson('POST', `${pathOf(name)}/${isArchived ? 'archive' : 'restore'}`, {})

export async function deleteExperiment(name: string): Promise<void> {
  await request(pathOf(name), { method: 'DELETE' })
}

// --- run ---

/** Change the settings that are given; null clears one. */
export const updateExperiment = (name: string, update: ExperimentUpdate): Promise<unknown> =>
  sendJson('PATCH', pathOf(name), update)

export const controlRun = (name: string, state: RunState): Promise<unknown> =>
  sendJson('POST', `${pathOf(name)}/control`, { state })

// --- diagnostics, clips, audit trail ---

export const getEpisodes = async (name: string): Promise<Episode[]> =>
  (await getJson<EpisodeList>(`${pathOf(name)}/episodes`)).episodes

export const getDiagnostics = (name: string): Promise<PredictorDiagnostics> =>
  getJson(`${pathOf(name)}/diagnostics`)

export async function getClips(
  envId: string,
  after: string | null,
  limit: number,
): Promise<Page<Clip>> {
  const path = `${API}/environments/${encodeURIComponent(envId)}/clips?${pageQuery(after, limit)}`
  const { clips, next } = await getJson<EnvironmentClipPage>(path)
  return { rows: clips, next }
}

export async function getAuditEvents(
  experiment: string,
  after: string | null,
  limit: number,
): Promise<Page<AuditEvent>> {
  const query = pageQuery(after, limit)
  query.set('experiment', experiment)
  const { events, next } = await getJson<AuditEventPage>(`${API}/audit?${query}`)
  return { rows: events, next }
}

function pageQuery(after: string | null, limit: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) })
  if (after !== null) query.set('after', after)
  return query
}
