/** The tabs of an experiment's page. */

import { experimentPath } from '../lib/router.svelte'

export const TABS = {
  overview: 'Overview',
  comparisons: 'Comparisons',
  disagreements: 'Disagreements',
  ranking: 'Ranking',
  clips: 'Clips',
  labelers: 'Labelers',
  settings: 'Settings',
  audit: 'Audit trail',
} as const

export type Tab = keyof typeof TABS

/** Return the path of a tab. */
export const tabPath = (name: string, tab: Tab): string =>
  experimentPath(name) + (tab === 'overview' ? '' : `?tab=${tab}`)

/** Return the tab that a query names. */
export function tabOf(query: URLSearchParams): Tab {
  const tab = query.get('tab') ?? 'overview'
  return Object.hasOwn(TABS, tab) ? (tab as Tab) : 'overview'
}
