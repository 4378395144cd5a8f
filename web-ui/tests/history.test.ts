import { describe, expect, it } from 'vitest'
import { REMEMBERED, answerTo, remember, restore, takeBack } from '../src/lib/history'
import type { History } from '../src/lib/history'
import type { Comparison } from '../src/lib/types'

const comparison = (id: number, answer: Comparison['answer'] = null): Comparison =>
  ({ id, experiment: 'mine', asked_at_step: 0, answer }) as Comparison

describe('the last answers', () => {
  it('are the last twenty', () => {
    let history: History = []
    for (let id = 1; id <= 25; id++) history = remember(history, comparison(id), 'left')
    expect(history).toHaveLength(REMEMBERED)
    expect(history[0]!.comparison.id).toBe(6)
  })

  it('hold one answer per comparison, the newest', () => {
    const history = remember(remember([], comparison(1), 'left'), comparison(1), 'equal')
    expect(history).toHaveLength(1)
    expect(answerTo(history, 1)).toBe('equal')
  })

  it('are taken back one by one, and then there is none', () => {
    const { history, taken } = takeBack(remember([], comparison(3), 'right'))
    expect(taken?.comparison.id).toBe(3)
    expect(takeBack(history).taken).toBeNull()
  })

  it('after a reload are those of the service, and on top what is unsent', () => {
    const known = [comparison(1, 'left'), comparison(2, 'right')]
    const unsent = [
      { comparison: comparison(2), label: { answer: null } },
      { comparison: comparison(3), label: { answer: 'equal' as const } },
    ]
    const history = restore(known, unsent)
    expect(history.map((each) => each.comparison.id)).toEqual([1, 3])
    expect(answerTo(history, 2)).toBeNull()
  })
})
