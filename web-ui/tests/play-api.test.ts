import { describe, expect, it } from 'vitest'

import { mean, rangeOf } from '../src/lib/play-api'

describe('mean', () => {
  it('ignores null', () => expect(mean([1, null, 5])).toBe(3))
  it('returns null without values', () => expect(mean([null])).toBeNull())
})

describe('rangeOf', () => {
  it('spans all curves', () => expect(rangeOf([[1, 4], null, [-2]])).toEqual([-2, 4]))
  it('returns null without curves', () => expect(rangeOf([null])).toBeNull())
})
