import { describe, expect, it } from 'vitest'

import { mean, rangeOf } from '../src/lib/play-api'

describe('the mean of returns', () => {
  it('leaves out what is not known', () => expect(mean([1, null, 5])).toBe(3))
  it('is null where nothing is known', () => expect(mean([null])).toBeNull())
})

describe('the range of curves', () => {
  it('reaches over all of them', () => expect(rangeOf([[1, 4], null, [-2]])).toEqual([-2, 4]))
  it('is null where there is none', () => expect(rangeOf([null])).toBeNull())
})
