import { describe, expect, it } from 'vitest'

import { RequestRejected, ServerUnreachable, SignedOut, Throttled } from '../src/lib/api'
import type { ExperimentSummary, Phase, Progress } from '../src/lib/api-types'
import { pageState, troubleOf, type Facts } from '../src/lib/page-state'

const counts: Progress = { mine: 5, answered: 9, asked: 12, target: 60, waiting: 3, clips: null, newest_label: 9 }
const summaryOf = (phase: Phase, more: Partial<ExperimentSummary> = {}) =>
  ({ phase, step: 500, num_steps: 10_000, steps_per_second: 100, progress: counts, message: 'as it says', ...more }) as ExperimentSummary

const WAITING = summaryOf('waiting', { message: '8 more labels until training starts' })

const facts = (more: Partial<Facts>): Facts => ({
  shown: null,
  numClips: 2,
  isPairOnly: false,
  failure: null,
  trouble: null,
  summary: summaryOf('training'),
  counts,
  numMissing: 0,
  isHeld: false,
  isLoading: false,
  milestone: '',
  numAhead: 3,
  numUnsent: 0,
  isDurable: true,
  isOwner: true,
  next_s: null,
  ...more,
})

const NOT_FOUND = new RequestRejected({ type: '', title: '', status: 404, detail: 'It was renamed.' })

describe('the labelling page', () => {
  it.each<[string, Partial<Facts>, string, string]>([
    ['label', { shown: 'pair' }, '', ''],
    ['label', { shown: 'review', failure: NOT_FOUND, trouble: 'throttled', isHeld: true }, '', ''],
    ['ranking', { shown: 'ranking', numClips: 4 }, '', ''],
    ['pair only', { shown: 'pair', isPairOnly: true }, '', 'this is a pair'],
    ['waited for', { shown: 'pair', numMissing: 1, summary: WAITING }, '1 more label until training starts', ''],
    ['waited for', { numMissing: 2, summary: WAITING }, '2 more labels until training starts', 'in a few seconds'],
    ['label', { shown: 'pair', numMissing: 1, summary: WAITING, counts: { ...counts, answered: 60 } }, '', ''],
    ['milestone', { shown: 'pair', milestone: 'Training starts', numMissing: 7 }, 'Training starts', ''],
    ['milestone', { milestone: 'Training starts', summary: summaryOf('paused') }, 'Training starts', ''],
    ['finishing', { shown: 'pair', summary: summaryOf('finishing'), numMissing: 7 }, 'Finishing', 'Using 9 labels, and saving.'],
    ['finishing', { summary: summaryOf('finishing'), milestone: 'Training starts', isHeld: true }, 'Finishing', 'Using 9 labels, and saving.'],
    ['finished', { shown: 'review', summary: summaryOf('finished') }, 'The run is finished', 'used if it is extended'],
    ['finished', { summary: summaryOf('finished'), milestone: 'Training starts', isHeld: true }, 'The run is finished', 'Finished 10k steps with 9 labels.'],
    ['offline', { shown: 'pair', trouble: 'offline', numMissing: 7 }, 'The server is unreachable', '4 comparisons are loaded'],
    ['offline', { shown: 'pair', trouble: 'offline', numAhead: 0, isDurable: false }, 'The server is unreachable', 'last loaded comparison, and your labels are saved only on this page'],
    ['offline', { shown: 'ranking', trouble: 'offline' }, 'The server is unreachable', 'Your order stays on this page'],
    ['offline', { trouble: 'offline', numUnsent: 4 }, 'The server is unreachable', '4 unsent labels saved in this browser'],
    ['offline', { trouble: 'offline', summary: summaryOf('stopped') }, 'Stopped at 500 of 10k steps. Run the same command to continue.', 'keeps trying'],
    ['signed out', { shown: 'pair', trouble: 'signed out' }, 'This browser is no longer signed in', 'Open the link from the terminal'],
    ['signed out', { trouble: 'signed out', isOwner: false }, 'This browser is no longer signed in', 'Ask the person who invited you'],
    ['failed', { failure: NOT_FOUND, trouble: 'offline' }, 'Experiment not found', 'It was renamed.'],
    ['loading', { isLoading: true, trouble: 'throttled' }, '', 'Loading the next comparison…'],
    ['throttled', { trouble: 'throttled', isHeld: true }, 'Too many requests', 'in a few seconds'],
    ['held', { isHeld: true, numMissing: 1, summary: WAITING }, 'Nothing to label right now', 'Other labelers have the remaining comparisons'],
    ['all labelled', { counts: { ...counts, answered: 60, waiting: 0 } }, 'All comparisons are labelled, thank you', 'The agent continues training, for about 2 min.'],
    ['all labelled', { counts: { ...counts, answered: 60, waiting: 0 }, summary: summaryOf('fitting', { steps_per_second: null }) }, 'All comparisons are labelled, thank you', 'The agent continues training.'],
    ['idle', { next_s: 10 }, 'Nothing to label right now', 'Next comparison in about 10 s.'],
    ['paused', { summary: summaryOf('paused'), isHeld: true }, 'The run is paused', 'when you resume it'],
    ['paused', { summary: summaryOf('paused'), isOwner: false, counts: { ...counts, answered: 60 } }, 'The run is paused', 'when its owner resumes it'],
    ['label', { shown: 'pair', summary: summaryOf('paused') }, '', ''],
    ['idle', { summary: summaryOf('lost') }, 'Nothing to label right now', 'As it says'],
  ])('is in state %s with %j', (kind, more, heading, text) => {
    const state = pageState(facts(more))
    expect([state.kind, state.heading]).toEqual([kind, heading])
    if (text === '') expect(state.text).toBe('')
    else expect(state.text).toContain(text)
    const isShown = facts(more).shown !== null
    expect([state.hasAnswers, state.footer]).toEqual([isShown || kind === 'loading', isShown ? '3 waiting' : ''])
  })

  it('announces its state, or what is ready', () => {
    const announcements = [{ isHeld: false, next_s: 10 }, { shown: 'pair' as const }, { shown: 'ranking' as const, numClips: 4 }]
    expect(announcements.map((more) => pageState(facts(more)).announcement)).toEqual([
      'Nothing to label right now. The agent is training. Next comparison in about 10 s.',
      'A comparison is ready.',
      '4 clips are ready. Press their numbers, best first.',
    ])
  })

  it('tells troubles from rejections', () => {
    const errors = [null, NOT_FOUND, new SignedOut(), new Throttled(), new ServerUnreachable(), new Error()]
    expect(errors.map(troubleOf)).toEqual([null, null, 'signed out', 'throttled', 'offline', 'offline'])
  })
})
