/** What the labelling page says: one state, decided by the first row that matches. */

import { RequestRejected, SignedOut, Throttled } from './api'
import type { ExperimentSummary, Phase, Progress } from './api-types'
import { capitalise, count, duration, errorText, failureText, plural } from './format'
import { describeStatus, missingText, trainingLeft } from './status'

/** Why requests do not get through. */
export type Trouble = 'signed out' | 'offline' | 'throttled'

export interface Facts {
  /** What is on screen: a new comparison, one that was reopened, or clips to rank. */
  shown: 'pair' | 'review' | 'ranking' | null
  /** Number of clips to rank. */
  numClips: number
  /** Whether a new pair is on screen although more clips were chosen. */
  isPairOnly: boolean
  /** Why the page has nothing to show, for good. */
  failure: unknown
  trouble: Trouble | null
  summary: ExperimentSummary | null
  /** Counts of labels, unsent ones included. */
  counts: Progress | null
  /** Labels that training waits for; 0 if it does not wait. */
  numMissing: number
  /** Whether the remaining comparisons are leased to others or labelled by this labeler. */
  isHeld: boolean
  isLoading: boolean
  /** What the run has just reached, or an empty string. */
  milestone: string
  /** Comparisons that are loaded behind the one on screen. */
  numAhead: number
  numUnsent: number
  /** Whether the browser keeps unsent labels when the page is closed. */
  isDurable: boolean
  isOwner: boolean
  /** Estimated seconds until the next comparison; null if it cannot be estimated. */
  next_s: number | null
}

export interface PageState {
  kind: string
  heading: string
  text: string
  isWarning: boolean
  /** What a screen reader announces when this state begins. */
  announcement: string
  /** Whether there is something to answer, or will be in a moment. */
  hasAnswers: boolean
  footer: string
}

type Row = [kind: string, matches: boolean, heading: string, text?: string]

const HELD =
  'Other labelers have the remaining comparisons, or you have already labelled them. The next free one appears here automatically.'

/** When the next comparison comes; the service explains the other phases. */
const PHASE_TEXTS: Partial<Record<Phase, string>> = {
  starting: 'The run is starting. The first comparisons come in a few seconds.',
  random: 'The agent acts at random to collect the first clips. The first comparisons come in a few seconds.',
  waiting: 'The next clips are being rendered. They come in a few seconds.',
  fitting: 'The reward predictor is being fitted to the labels. The next comparisons come when the agent trains again.',
  training: 'The agent is training. The next comparisons come by the label schedule.',
  stopped: 'The run was stopped. The next comparisons come when it is started again.',
}

/** Return where unsent labels are kept; completes a sentence. */
export const placeOf = (isDurable: boolean): string =>
  isDurable ? 'in this browser' : 'only on this page, so leave it open'

export const troubleOf = (error: unknown): Trouble | null => {
  if (error === null || error instanceof RequestRejected) return null
  return error instanceof SignedOut ? 'signed out' : error instanceof Throttled ? 'throttled' : 'offline'
}

export function pageState(facts: Facts): PageState {
  const { shown, summary, trouble } = facts
  const isShown = shown !== null
  const rows: Row[] = [
    ['failed', !isShown && facts.failure !== null, failureText(facts.failure), errorText(facts.failure)],
    ['signed out', trouble === 'signed out', 'This browser is no longer signed in', signedOutText(facts)],
    ['offline', trouble === 'offline', offlineHeading(facts), offlineText(facts)],
    ['finishing', summary?.phase === 'finishing', 'Finishing', finishedText(facts)],
    ['finished', summary?.phase === 'finished', 'The run is finished', finishedText(facts)],
    ['milestone', facts.milestone !== '', facts.milestone],
    ['waited for', isShown && isWaiting(facts), waitedForText(facts)],
    ['pair only', facts.isPairOnly, '', 'Fewer than two comparisons are open, so this is a pair.'],
    ['ranking', shown === 'ranking', ''],
    ['label', isShown, ''],
    ['loading', facts.isLoading, '', 'Loading the next comparison…'],
    ['throttled', trouble === 'throttled', 'Too many requests', THROTTLED],
    ['paused', summary?.phase === 'paused', 'The run is paused', pausedText(facts)],
    ['held', facts.isHeld, 'Nothing to label right now', HELD],
    ['waited for', isWaiting(facts), waitedForText(facts), 'The next comparisons come in a few seconds.'],
    ['all labelled', hasAllLabels(facts), 'All comparisons are labelled, thank you', thanksText(facts)],
    ['idle', true, 'Nothing to label right now', idleText(facts)],
  ]
  const [kind, , heading, text = ''] = rows.find(([, matches]) => matches)!
  const sentences = [heading, text].filter((part) => part !== '').map((part) => part.replace(/[.…]$/, ''))
  return {
    kind,
    heading,
    text,
    isWarning: trouble !== null && ['signed out', 'offline', 'throttled'].includes(kind),
    announcement: sentences.length > 0 ? `${sentences.join('. ')}.` : readyText(facts),
    hasAnswers: isShown || kind === 'loading',
    footer: isShown && facts.counts !== null ? `${count(facts.counts.waiting)} waiting` : '',
  }
}

const THROTTLED =
  'Your open pages have sent too many requests. The next comparison appears here in a few seconds.'

/** Return what is ready on screen, as a screen reader announces it. */
export const readyText = ({ shown, numClips }: Pick<Facts, 'shown' | 'numClips'>): string =>
  shown === 'ranking' ? `${numClips} clips are ready. Press their numbers, best first.` : 'A comparison is ready.'

function signedOutText({ isOwner, shown, numUnsent, isDurable }: Facts): string {
  const hint = isOwner ? 'Open the link from the terminal again.' : 'Ask the person who invited you for a new link.'
  if (shown === 'ranking') return `${hint} Until then, your order stays on this page.`
  if (shown !== null) return `${hint} Until then, your labels are saved ${placeOf(isDurable)}.`
  return numUnsent > 0 ? `${hint} ${plural(numUnsent, 'unsent label')} saved ${placeOf(isDurable)}.` : hint
}

/** A run that ends may end its server, after the last event. */
const offlineHeading = ({ summary }: Facts): string =>
  summary?.phase === 'stopped' ? describeStatus(summary) : 'The server is unreachable'

function offlineText({ shown, numAhead, numUnsent, isDurable }: Facts): string {
  if (shown === 'ranking') return 'Your order stays on this page. Submit it when the server is back.'
  if (shown !== null) {
    const left = numAhead > 0 ? `You can continue: ${count(numAhead + 1)} comparisons are loaded` : 'This is the last loaded comparison'
    return `${left}, and your labels are saved ${placeOf(isDurable)}.`
  }
  const kept = numUnsent > 0 ? ` ${plural(numUnsent, 'unsent label')} saved ${placeOf(isDurable)}.` : ''
  return `You have labelled all comparisons that were loaded. The page keeps trying to reconnect.${kept}`
}

const finishedText = ({ shown, summary }: Facts): string =>
  summary === null ? '' : shown !== null && summary.phase === 'finished' ? 'Labels are saved, and used if it is extended.' : describeStatus(summary)

const pausedText = ({ isOwner }: Facts): string =>
  `The next comparisons come when ${isOwner ? 'you resume' : 'its owner resumes'} it.`

const waitedForText = ({ summary, numMissing }: Facts): string =>
  summary === null ? '' : missingText(summary, numMissing)

function hasAllLabels({ counts, summary }: Facts): boolean {
  const isGoingOn = summary !== null && !['stopped', 'failed', 'lost', 'idle'].includes(summary.phase)
  return isGoingOn && counts !== null && counts.target !== null && counts.answered >= counts.target
}

/** Whether training waits for labels; a run that is being finished may not know yet that it does not. */
const isWaiting = (facts: Facts): boolean => facts.numMissing > 0 && !hasAllLabels(facts)

function thanksText({ summary }: Facts): string {
  if (summary === null || summary.num_steps === 0) return ''
  const left_s = trainingLeft(summary)
  return `The agent continues training${left_s > 0 ? `, for about ${duration(left_s)}` : ''}.`
}

function idleText({ summary, next_s }: Facts): string {
  if (summary === null) return ''
  if (next_s !== null) return `The agent is training. Next comparison in about ${duration(next_s)}.`
  return PHASE_TEXTS[summary.phase] ?? capitalise(summary.message)
}
