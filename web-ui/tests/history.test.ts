import { describe, expect, it } from 'vitest'
import { MAX_HISTORY, answerTo, remember, restore } from '../src/lib/history'
import type { History } from '../src/lib/history'
import type { Comparison } from '../src/lib/api-types'

const comparison = (id: number, answer: Comparison['answer'] = null): Comparison =>
  ({ id, experiment: 'mine', asked_at_step: 0, answer }) as Comparison

describe('history', () => {
  it('keeps the twenty most recent labels', () => {
    let history: History = []
    for (let id = 1; id <= 25; id++) history = remember(history, comparison(id), 'left')
    expect(history).toHaveLength(MAX_HISTORY)
    expect(history[0]!.comparison.id).toBe(6)
  })

  it('replaces an earlier answer to the same comparison', () => {
    const history = remember(remember([], comparison(1), 'left'), comparison(1), 'equal')
    expect(history).toHaveLength(1)
    expect(answerTo(history, 1)).toBe('equal')
  })

  it('applies unsent labels on top of those of the service after a reload', () => {
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
