import { describe, expect, it } from 'vitest'

import { matches, sorted } from '../src/experiments/sorting'
import type { ExperimentSummary } from '../src/lib/api-types'

const experiment = (name: string, changes: Partial<ExperimentSummary>) =>
  ({ name, env_id: 'ShortHopper-v1', instructions: '', sparkline: [], wall_s: null, agent: 'ppo', tags: [], ...changes }) as ExperimentSummary

const list = [
  experiment('a', { sparkline: [900, 100] }),
  experiment('b', {}),
  experiment('c', { sparkline: [5, 700], agent: 'sac', tags: ['thesis'] }),
]
const namesOf = (key: string, isAscending: boolean) => sorted(list, key, isAscending).map(({ name }) => name).join('')

describe('the order of experiments', () => {
  it.each([
    ['return', false, 'cab'],
    ['return', true, 'acb'],
    ['agent', true, 'abc'],
    ['duration', false, 'abc'],
    ['', false, 'abc'],
    ['unknown', true, 'abc'],
  ])('by "%s", ascending: %s', (key, isAscending, names) => expect(namesOf(key, isAscending)).toBe(names))

  it('finds all words in names, environments, agents and tags', () => {
    expect(list.filter((one) => matches(one, 'hopper THESIS')).map(({ name }) => name)).toEqual(['c'])
    expect(list.every((one) => matches(one, ''))).toBe(true)
  })
})
