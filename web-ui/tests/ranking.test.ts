import { describe, expect, it } from 'vitest'
import type { LoadedComparison } from '../src/lib/clips'
import {
  append,
  clipsOf,
  describe as inWords,
  move,
  screenOf,
  shift,
  takeBack,
  type Groups,
} from '../src/lib/ranking'

const side = (hash: string) => ({ kind: 'video', clip: { hash }, url: '' })
const pair = (id: number, left: string, right: string) =>
  ({ comparison: { id }, left: side(left), right: side(right) }) as unknown as LoadedComparison
const hashesOf = (queue: LoadedComparison[], size: number) =>
  screenOf(queue, size).clips.map(({ clip }) => clip.hash).join('')
const idsOf = (queue: LoadedComparison[], size: number) =>
  screenOf(queue, size).comparisons.map(({ comparison }) => comparison.id)

describe('screen of clips', () => {
  const apart = [pair(1, 'a', 'b'), pair(2, 'c', 'd'), pair(3, 'e', 'f'), pair(4, 'g', 'h')]

  it('shows as many clips as chosen, of as few comparisons as possible', () => {
    expect([3, 4, 5].map((size) => hashesOf(apart, size))).toEqual(['abc', 'abcd', 'abcde'])
    expect([3, 4, 5].map((size) => idsOf(apart, size))).toEqual([[1, 2], [1, 2], [1, 2, 3]])
  })

  it('shows a shared clip once and takes more comparisons instead', () => {
    const chain = [pair(1, 'a', 'b'), pair(2, 'b', 'c'), pair(3, 'd', 'a'), pair(4, 'd', 'c'), pair(5, 'x', 'y')]
    expect(hashesOf(chain, 4)).toBe('abcd')
    // The fourth comparison is answered by the same order.
    expect(idsOf(chain, 4)).toEqual([1, 2, 3, 4])
  })

  it('shows what there is if there are fewer comparisons', () => {
    expect(hashesOf(apart.slice(0, 1), 5)).toBe('ab')
    expect(clipsOf([])).toEqual([])
  })
})

describe('order of clips', () => {
  const order: Groups = [['a'], ['b', 'c'], ['d']]

  it('grows by places and ties, and shrinks by the last clip', () => {
    const grown = append(append(append([], 'a', true), 'b', false), 'c', true)
    expect(grown).toEqual([['a'], ['b', 'c']])
    expect(takeBack(grown)).toEqual([['a'], ['b']])
    expect(takeBack(takeBack(takeBack(grown)))).toEqual([])
    expect(takeBack([])).toEqual([])
  })

  it.each([
    ['d', 0, false, [['d'], ['a'], ['b', 'c']]],
    ['a', 2, false, [['b', 'c'], ['a'], ['d']]],
    ['a', 3, false, [['b', 'c'], ['d'], ['a']]],
    ['a', 1, true, [['b', 'c', 'a'], ['d']]],
    ['b', 1, false, [['a'], ['b'], ['c'], ['d']]],
    ['b', 2, false, [['a'], ['c'], ['b'], ['d']]],
    ['b', 1, true, order],
    ['new', 0, false, [['new'], ['a'], ['b', 'c'], ['d']]],
    ['new', 2, true, [['a'], ['b', 'c'], ['d', 'new']]],
  ])('moves %s to %d (tie: %s)', (clip, index, isTie, expected) => {
    expect(move(order, clip, { index, isTie })).toEqual(expected)
  })

  it('shifts a clip by half places to the end and back', () => {
    let groups: Groups = [['a'], ['b']]
    const seen = [1, 1, 1, -1, -1, -1].map((direction) => {
      groups = shift(groups, 'a', direction as 1 | -1)
      return groups.map((group) => group.join('=')).join('>')
    })
    expect(seen).toEqual(['b=a', 'b>a', 'b>a', 'b=a', 'a>b', 'a>b'])
  })

  it('is described in words', () => {
    expect(inWords(order, (clip) => 'abcd'.indexOf(clip) + 1)).toBe('1, then 2 and 3, then 4')
  })
})
