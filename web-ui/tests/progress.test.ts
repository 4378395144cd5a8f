import { describe, expect, it } from 'vitest'

import type { ExperimentSummary } from '../src/lib/api-types'
import { clipsText, LabellingProgress, labelsPerMinute, ofTarget, secondsLeft, secondsToNext } from '../src/lib/progress.svelte'

const progress = { mine: 0, answered: 20, asked: 20, target: 60, waiting: 0, clips: null, newest_label: 0 }
const summary = {
  phase: 'training',
  step: 110_000,
  num_steps: 500_000,
  steps_per_second: 1_000,
  progress,
} as ExperimentSummary

describe('labels that training waits for', () => {
  const waiting = (num_missing: number, answered: number) => ({ num_missing, progress: { ...progress, answered } })

  it('fall with each label, whether it is unsent, acknowledged or counted by the run', () => {
    const labelling = new LabellingProgress()
    labelling.follow(waiting(5, 20))
    labelling.unsentChange = 1
    expect(labelling.numMissing).toBe(4)
    labelling.acknowledge(1)
    labelling.unsentChange = 0
    expect(labelling.numMissing).toBe(4)
    // The service has counted the label, but the run has not read it.
    labelling.follow(waiting(5, 21))
    expect(labelling.numMissing).toBe(4)
    labelling.follow(waiting(4, 21))
    expect(labelling.numMissing).toBe(4)
    labelling.follow(waiting(0, 25))
    expect(labelling.numMissing).toBe(0)
    labelling.follow(waiting(3, 25))
    expect(labelling.numMissing).toBe(3)
  })
})

describe('secondsToNext', () => {
  it('spreads the missing comparisons over the remaining steps', () => {
    // 40 comparisons over 400,000 steps: one every 10,000, the next at step 120,000 - 10 s away
    // at step 110,000 if the latest came at step 110,000, and due now if it came at 100,000.
    expect(secondsToNext(summary, 110_000)).toBeCloseTo(9.75)
    expect(secondsToNext(summary, 100_000)).toBe(1)
  })

  it('returns null unless the run trains and will ask more', () => {
    expect(secondsToNext({ ...summary, phase: 'paused' }, 0)).toBeNull()
    expect(secondsToNext({ ...summary, progress: { ...progress, asked: 60 } }, 0)).toBeNull()
    expect(secondsToNext({ ...summary, steps_per_second: null }, 0)).toBeNull()
    expect(secondsToNext({ ...summary, num_steps: 0 }, 0)).toBeNull()
  })
})

describe('clipsText', () => {
  it('counts clips where they are sorted, out of those to sort', () => {
    expect(clipsText(progress)).toBe('')
    expect(clipsText({ ...progress, clips: { compared: 1, target: null } })).toBe('1 clip')
    expect(clipsText({ ...progress, clips: { compared: 40, target: 1200 } })).toBe('40 of 1,200 clips')
  })
})

describe('labelsPerMinute', () => {
  it('ignores breaks and needs a few labels', () => {
    expect(labelsPerMinute([0, 3_000, 6_000])).toBeNull()
    expect(labelsPerMinute([0, 3_000, 6_000, 9_000, 600_000])).toBeCloseTo(20)
  })
})

describe('a run that asks until it is finished', () => {
  it('has no number of labels to reach, and no time left', () => {
    const open = { answered: 3, asked: 8, clips: null, mine: 3, newest_label: 3, target: null, waiting: 5 }
    expect([ofTarget(open), secondsLeft(open, 20)]).toEqual(['', null])
    const bounded = { ...open, target: 1_023 }
    expect([ofTarget(bounded), secondsLeft(bounded, 20)]).toEqual([' of 1,023', 3_060])
  })
})
