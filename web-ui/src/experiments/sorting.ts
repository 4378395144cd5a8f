/** Sorting and searching of the list of experiments. */

import type { ExperimentSummary } from '../lib/api-types'

const KEYS = {
  return: ({ sparkline }: ExperimentSummary) => sparkline.at(-1) ?? null,
  labels: ({ progress }: ExperimentSummary) => progress.answered,
  duration: ({ wall_s }: ExperimentSummary) => wall_s,
  agent: ({ agent }: ExperimentSummary) => agent,
  seed: ({ seed }: ExperimentSummary) => seed,
}
export type SortKey = keyof typeof KEYS
export const SORT_KEYS = Object.keys(KEYS) as SortKey[]

/** Sort by a key; missing values are last in both directions. Without a key, keep the order. */
export function sorted(
  experiments: readonly ExperimentSummary[],
  key: string,
  isAscending: boolean,
): readonly ExperimentSummary[] {
  const valueOf = KEYS[key as SortKey]
  if (valueOf === undefined) return experiments
  return experiments.toSorted((one, other) => {
    const [a, b] = [valueOf(one), valueOf(other)]
    if (a === null || b === null) return Number(a === null) - Number(b === null)
    return (a < b ? -1 : a > b ? 1 : 0) * (isAscending ? 1 : -1)
  })
}

/** Return whether all words occur in what the list shows of an experiment. */
export function matches({ name, env_id, instructions, agent, tags }: ExperimentSummary, search: string): boolean {
  const text = [name, env_id, instructions, agent ?? '', ...tags].join(' ').toLowerCase()
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word))
}
