import { describe, expect, it, vi } from 'vitest'

import type { Clip, Comparison, LabelEffect, Progress } from '../src/lib/api-types'
import { hideAsked, LabelEffects } from '../src/lib/label-effect.svelte'

const clip = (hash: string) => ({ hash }) as Clip
const comparison = (id: number, answer: Comparison['answer'] = 'left') =>
  ({ id, left: clip(`left-${id}`), right: clip(`right-${id}`), answer }) as Comparison
const effectOf = (more: Partial<LabelEffect>): LabelEffect => ({
  num_fits: 1,
  num_labels: 24,
  num_compared: 20,
  num_agreed: 17,
  disagreements: [],
  highest: [],
  lowest: [],
  ...more,
})

describe('effect of labels', () => {
  const summary = (num_fits: number, mine = 5) => ({ num_fits, progress: { mine } as Progress })

  it('is fetched once after each fit and kept as the previous one', async () => {
    let num_fits = 0
    const getLabelEffect = vi.fn(() => Promise.resolve(effectOf({ num_fits: ++num_fits })))
    const effects = new LabelEffects('hop', { getLabelEffect })
    for (const fits of [0, 1, 1, 2, 2]) await effects.follow(summary(fits))
    expect(getLabelEffect).toHaveBeenCalledTimes(2)
    expect([effects.previous?.num_fits, effects.latest?.num_fits]).toEqual([1, 2])
  })

  it('is not fetched before the first label of this labeler', async () => {
    const getLabelEffect = vi.fn(() => Promise.resolve(effectOf({})))
    const effects = new LabelEffects('hop', { getLabelEffect })
    await effects.follow(summary(3, 0))
    expect(getLabelEffect).not.toHaveBeenCalled()
    await effects.follow(summary(3, 1))
    expect(effects.latest).not.toBeNull()
  })

  it('is not shown while no label of this labeler was fitted', async () => {
    const empty = effectOf({ num_compared: 0, num_agreed: 0 })
    const effects = new LabelEffects('hop', { getLabelEffect: () => Promise.resolve(empty) })
    await effects.follow(summary(1))
    expect(effects.latest).toBeNull()
  })
})

describe('hideAsked', () => {
  const effect = effectOf({
    disagreements: [comparison(1), comparison(2)],
    highest: [clip('left-1'), clip('left-7')],
    lowest: [clip('right-7'), clip('right-1')],
  })
  const ids = ({ disagreements }: LabelEffect) => disagreements.map(({ id }) => id)
  const hashes = (clips: readonly Clip[]) => clips.map(({ hash }) => hash)

  it('leaves out everything about clips that are asked', () => {
    const shown = hideAsked(effect, [comparison(1, null)], [])
    expect(ids(shown)).toEqual([2])
    expect(hashes(shown.highest)).toEqual(['left-7'])
    expect(hashes(shown.lowest)).toEqual(['right-7'])
  })

  it('leaves out another comparison of a clip that is asked', () => {
    const other = { ...comparison(9, null), left: clip('right-2') }
    expect(ids(hideAsked(effect, [other], []))).toEqual([1])
  })

  it('leaves out labels that have been changed', () => {
    const given = (answer: 'left' | 'right') => [{ comparison: comparison(2), answer }]
    expect(ids(hideAsked(effect, [], given('left')))).toEqual([1, 2])
    expect(ids(hideAsked(effect, [], given('right')))).toEqual([1])
  })
})
