/** Requests that only owners may make. */

import { API, RequestRejected, getJson, pathOf, postLabels, request, sendJson } from './api'
import type * as T from './api-types'
import { newRequestId } from './outbox'

/** A page of a long list; `next` continues it and is null at the end. */
export interface Page<Row> {
  rows: Row[]
  next: number | null
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
  answer: T.Answer | ''
  labeler: string
  disputed: boolean
  gold: boolean
}

export async function getComparisons(
  name: string,
  filter: Partial<Filter>,
  after: number | null,
  limit: number,
): Promise<Page<ListedComparison>> {
  const query = pageQuery(after, limit)
  for (const [key, value] of Object.entries(filter)) if (value) query.set(key, String(value))
  const path = `${pathOf(name)}/comparisons?${query}`
  return getJson(path)
}

export const setGold = (id: number, answer: T.Answer | null): Promise<unknown> =>
  sendJson('PUT', `${API}/comparisons/${id}/gold`, { answer })

/** Label as the owner, in the comparison's own order; null withdraws that label. */
export async function adjudicate(
  { id, left }: ListedComparison,
  answer: T.Answer | null,
): Promise<void> {
  const label = { request_id: newRequestId(), comparison_id: id, answer, left_hash: left?.hash ?? null }
  const { rejected } = await postLabels([label])
  if (rejected[0] !== undefined) throw new RequestRejected(rejected[0].problem)
}

/** Formats of the agent for other programs, with their names. */
export const AGENT_FORMATS = { numpy: 'NumPy', onnx: 'ONNX', sb3: 'Stable-Baselines3' } as const

export const agentPath = (name: string, format: string): string => `${pathOf(name)}/agent?format=${format}`

export const exportPath = (name: string): string => `${pathOf(name)}/export`

export const getRanking = (name: string): Promise<T.Ranking> => getJson(`${pathOf(name)}/ranking`)

/** Fetch the comparisons of a clip, with the probabilities of their answers in the ranking. */
export const getComparisonsOf = (name: string, hash: string): Promise<T.ReviewedComparison[]> =>
  getJson(`${pathOf(name)}/ranking/${hash}`)

// --- labelers and invites ---

export const getQuality = (name: string): Promise<T.LabelQuality> => getJson(`${pathOf(name)}/quality`)

export const getLabelers = (): Promise<T.LabelerView[]> => getJson(`${API}/labelers`)

export const changeLabeler = (
  id: number,
  action: 'exclude' | 'include' | 'revoke',
): Promise<unknown> => sendJson('POST', `${API}/labelers/${id}/${action}`, {})

export const getInvites = (): Promise<T.InviteView[]> => getJson(`${API}/invites`)

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

export const controlRun = (name: string, state: T.ControlRequest['state']): Promise<unknown> =>
  sendJson('POST', `${pathOf(name)}/control`, { state })

// --- diagnostics, clips, audit trail ---

export const getEpisodes = (name: string): Promise<T.Episode[]> =>
  getJson(`${pathOf(name)}/episodes`)

export const getDiagnostics = (name: string): Promise<T.PredictorDiagnostics> =>
  getJson(`${pathOf(name)}/diagnostics`)

/** Fetch the clips of an environment; only those of one experiment, if it is given. */
export const getClips = (
  envId: string,
  experiment: string | null,
  after: number | null,
  limit: number,
): Promise<Page<T.Clip>> => {
  const query = pageQuery(after, limit)
  if (experiment !== null) query.set('experiment', experiment)
  return getJson(`${API}/environments/${encodeURIComponent(envId)}/clips?${query}`)
}

/** Fetch what each setting of a configuration means, by its name. */
export const getSettings = (): Promise<Record<string, string>> => getJson(`${API}/settings`)

export async function getAuditEvents(
  experiment: string,
  after: number | null,
  limit: number,
): Promise<Page<T.EventView>> {
  const query = pageQuery(after, limit)
  query.set('experiment', experiment)
  return getJson(`${API}/audit?${query}`)
}

function pageQuery(after: number | null, limit: number): URLSearchParams {
  const query = new URLSearchParams({ limit: String(limit) })
  if (after !== null) query.set('after', String(after))
  return query
}
