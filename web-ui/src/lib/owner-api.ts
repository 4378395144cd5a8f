/** Requests that only owners may make. */

import { API, getJson, pathOf, request, sendJson } from './api'
import type * as T from './api-types'

/** A page of a long list; `next` continues it and is null at the end. */
export interface Page<Row> {
  rows: Row[]
  next: string | null
}

export const getOwnerExperiment = (name: string): Promise<T.OwnerExperimentDetail> =>
  getJson(pathOf(name))

// --- comparisons ---

/** A comparison in a list; the page adds the owner's own label before the list is reloaded. */
export type ListedComparison = Omit<T.ReviewedComparison, 'answers'> & {
  answers: Pick<T.LabelerAnswer, 'labeler' | 'answer' | 'is_excluded'>[]
}

export type Status = 'any' | 'answered' | 'open'

export interface Filter {
  status: Status
  sort: T.ComparisonOrder
  answer: T.Answer | ''
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
  const { comparisons, next } = await getJson<T.ReviewedComparisonPage>(path)
  return { rows: comparisons, next }
}

export const setGold = (id: number, answer: T.Answer | null): Promise<unknown> =>
  sendJson('PUT', `${API}/comparisons/${id}/gold`, { answer })

/** T.Answer as the owner; null withdraws that answer. */
export const adjudicate = (id: number, answer: T.Answer | null): Promise<unknown> =>
  sendJson('POST', `${API}/comparisons/${id}/adjudicate`, { answer })

export const exportPath = (name: string): string => `${pathOf(name)}/export`

export const getRanking = (name: string): Promise<T.Ranking> => getJson(`${pathOf(name)}/ranking`)

/** Fetch the comparisons of a clip, with the probabilities of their answers in the ranking. */
export const getComparisonsOf = async (name: string, hash: string): Promise<T.RankedComparison[]> =>
  (await getJson<T.ComparisonsOfClip>(`${pathOf(name)}/ranking/${hash}`)).comparisons

// --- labelers and invites ---

export const getQuality = (name: string): Promise<T.LabelQuality> => getJson(`${pathOf(name)}/quality`)

export const getLabelers = async (): Promise<T.Labeler[]> =>
  (await getJson<T.LabelerList>(`${API}/labelers`)).labelers

export const changeLabeler = (
  id: number,
  action: 'exclude' | 'include' | 'revoke',
): Promise<unknown> => sendJson('POST', `${API}/labelers/${id}/${action}`, {})

export const getInvites = async (): Promise<T.Invite[]> =>
  (await getJson<T.InviteList>(`${API}/invites`)).invites

/** Create an invite; its link is in this response only. */
export const createInvite = (invite: T.NewInviteRequest): Promise<T.NewInvite> =>
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
export const updateExperiment = (name: string, update: T.ExperimentUpdate): Promise<unknown> =>
  sendJson('PATCH', pathOf(name), update)

export const controlRun = (name: string, state: T.RunState): Promise<unknown> =>
  sendJson('POST', `${pathOf(name)}/control`, { state })

// --- diagnostics, clips, audit trail ---

export const getEpisodes = async (name: string): Promise<T.Episode[]> =>
  (await getJson<T.EpisodeList>(`${pathOf(name)}/episodes`)).episodes

export const getDiagnostics = (name: string): Promise<T.PredictorDiagnostics> =>
  getJson(`${pathOf(name)}/diagnostics`)

export async function getClips(
  envId: string,
  after: string | null,
  limit: number,
): Promise<Page<T.Clip>> {
  const path = `${API}/environments/${encodeURIComponent(envId)}/clips?${pageQuery(after, limit)}`
  const { clips, next } = await getJson<T.EnvironmentClipPage>(path)
  return { rows: clips, next }
}

export async function getAuditEvents(
  experiment: string,
  after: string | null,
  limit: number,
): Promise<Page<T.AuditEvent>> {
  const query = pageQuery(after, limit)
  query.set('experiment', experiment)
  const { events, next } = await getJson<T.AuditEventPage>(`${API}/audit?${query}`)
  return { rows: events, next }
}

function pageQuery(after: string | null, limit: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) })
  if (after !== null) query.set('after', after)
  return query
}
