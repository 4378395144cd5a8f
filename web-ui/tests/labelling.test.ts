import 'fake-indexeddb/auto'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import type { LoadedClip, LoadedComparison } from '../src/lib/clips'
import { LabellingSession, type LabellingOptions, type Service } from '../src/lib/labelling.svelte'
import { RequestRejected, ServerUnreachable, Throttled } from '../src/lib/api'
import { Outbox } from '../src/lib/outbox'
import type {
  Comparison,
  ExperimentSummary,
  LabelSubmission,
  Progress,
  RankingSubmission,
} from '../src/lib/api-types'
import { FakeSource, sendSummary, settle, stubBrowser } from './fakes'

const MINUTE_MS = 60_000

beforeEach(stubBrowser)
afterEach(() => void vi.unstubAllGlobals())

const ann = { name: 'ann', role: 'labeler', home: 'here' } as const
const bob = { ...ann, name: 'bob' }
const progress: Progress = { mine: 0, answered: 0, asked: 9, target: null, waiting: 9, clips: null, newest_label: 0 }
const summary = { phase: 'training', progress, latest_episode: null, num_missing: 0 } as ExperimentSummary
const clip = (hash: string) => ({ hash }) as LoadedClip['clip']
const comparison = (id: number): Comparison => ({
  id,
  number: id,
  experiment: 'hop',
  asked_at_step: 0,
  left: clip(`left-${id}`),
  right: clip(`right-${id}`),
  answer: null,
  lease: `lease-${id}`,
})

interface SessionOptions {
  lost?: string[]
  most?: number
  user?: LabellingOptions['user'] | object
  /** Methods that replace those of the service. */
  service?: Partial<Service>
  clips?: LabellingOptions['clips'] | object
  database?: IDBFactory
}

/** Create a session of a service with comparisons 1, 2, 3…; `lost` are leases that others hold. */
function createSession({ lost = [], most = Infinity, user = {}, ...more }: SessionOptions = {}) {
  const sent: LabelSubmission[] = []
  const rankings: RankingSubmission[] = []
  const released: string[] = []
  const { database = new IDBFactory() } = more
  let numLeased = 0
  const free = { most, isOffline: false, status: 0 }
  const service: Service = {
    getNext: (_, limit) => {
      const length = Math.min(limit, free.most - numLeased)
      const comparisons = Array.from({ length }, () => comparison(++numLeased))
      return Promise.resolve({ comparisons, progress })
    },
    getComparison: (id) => Promise.resolve(comparison(id)),
    getMyLabels: () => Promise.resolve([]),
    getExperiment: () => Promise.resolve(summary as never),
    getLabelEffect: () => Promise.reject(new Error('not used here')),
    postLabels: (labels) => {
      sent.push(...labels)
      return Promise.resolve({ accepted: labels.map((one) => one.request_id), rejected: [] })
    },
    postRanking: (_, ranking) => {
      if (free.isOffline) return Promise.reject(new ServerUnreachable('offline'))
      if (free.status > 0) {
        const problem = { type: 'about:blank', title: '', status: free.status, detail: '' }
        return Promise.reject(new RequestRejected(problem))
      }
      rankings.push(ranking)
      const ranked = ranking.groups.flat()
      const ids = Array.from({ length: numLeased }, (_, i) => i + 1)
      const isShown = (id: number) => ranked.includes(`left-${id}`) && ranked.includes(`right-${id}`)
      return Promise.resolve({ comparison_ids: [...ids.filter(isShown), 100, 101] })
    },
    withdrawRanking: () => Promise.resolve([comparison(1), comparison(2)]),
    renewLeases: () => Promise.resolve({ renewed: {}, lost }),
    releaseLeases: (leases) => (released.push(...leases), Promise.resolve()),
    ...more.service,
  }
  const loaded = (one: LoadedClip['clip']) => ({ kind: 'video', clip: one, url: '' }) as LoadedClip
  const session = new LabellingSession('hop', () => ({}), {
    service,
    user: { me: ann, readMe: () => Promise.resolve(ann), ...user },
    clips: {
      clip: (one) => Promise.resolve(loaded(one)),
      comparison: (one) =>
        Promise.resolve({ comparison: one, left: loaded(one.left), right: loaded(one.right) }),
      ...more.clips,
    },
    database,
  })
  const idsAhead = () => session.queue.items.map((ready) => ready.comparison.id)
  return { session, sent, rankings, released, idsAhead, free, database }
}

const kind = (session: LabellingSession) => session.state.kind

describe('labelling session', () => {
  it('sends each label with its lease and the clip on the left', async () => {
    const { session, sent } = createSession()
    await session.start()
    session.answer('left')
    await settle()
    expect(sent).toMatchObject([{ comparison_id: 1, lease: 'lease-1', left_hash: 'left-1' }])
    session.stop()
  })

  it('sends a label after undo without the lease, which has ended', async () => {
    const { session, sent } = createSession()
    await session.start()
    session.answer('left')
    session.undo()
    await settle()
    session.answer('right')
    await settle()
    expect(sent.map(({ answer, lease }) => [answer, lease])).toEqual([
      ['left', 'lease-1'],
      [null, null],
      ['right', null],
    ])
    session.stop()
  })

  it('drops queued comparisons with lost leases but keeps the one on screen', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { session, sent, idsAhead } = createSession({ lost: ['lease-1', 'lease-3'] })
    await session.start()
    expect(idsAhead()).toEqual([2, 3, 4])
    await vi.advanceTimersByTimeAsync(MINUTE_MS)
    vi.useRealTimers()
    await settle()
    expect(session.current?.comparison.id).toBe(1)
    expect(idsAhead()).toEqual([2, 4, 5])
    expect(session.notice).toBe('')
    session.answer('equal')
    await settle()
    expect(sent).toMatchObject([{ comparison_id: 1, answer: 'equal', lease: 'lease-1' }])
    session.stop()
  })

  it('shows nothing until the labeler is known', async () => {
    const readMe = vi.fn(() => Promise.resolve(ann))
    readMe.mockRejectedValueOnce(new ServerUnreachable('offline'))
    const { session } = createSession({ user: { me: null, readMe } })
    await session.start()
    expect([session.shown, kind(session)]).toEqual([null, 'failed'])
    session.retry()
    await settle()
    expect(session.current?.comparison.id).toBe(1)
    session.stop()
  })

  it('leaves out a label that is withdrawn while the first history is read', async () => {
    let read: (labels: unknown) => void = () => undefined
    const getMyLabels = () => new Promise<never>((resolve) => (read = resolve as typeof read))
    const { session, sent } = createSession({ service: { getMyLabels } })
    const starting = session.start()
    await settle()
    session.answer('left')
    session.answer('right')
    await session.undo()
    await settle()
    const known = { comparison: { ...comparison(2), answer: 'right' }, ranking: null }
    read([known, { comparison: { ...comparison(1), answer: 'left' }, ranking: null }])
    await starting
    expect(sent.map(({ answer }) => answer)).toEqual(['left', 'right', null])
    expect(session.labels.history.map(({ comparison: { id } }) => id)).toEqual([1])
    session.stop()
  })

  it('keeps labels while another account is signed in', async () => {
    const { session, sent } = createSession({ user: { readMe: () => Promise.resolve(bob) } })
    await session.start()
    session.answer('left')
    await settle()
    expect(sent).toEqual([])
    expect([session.labels.numUnsent, session.trouble]).toEqual([1, 'signed out'])
    session.stop()
  })

  it('forgets a label that is rejected', async () => {
    const problem = { type: '', title: '', status: 409, detail: 'Not assigned to you.' }
    const postLabels: Service['postLabels'] = ([label]) =>
      Promise.resolve({ accepted: [], rejected: [{ request_id: label!.request_id, problem }] })
    const { session } = createSession({ service: { postLabels } })
    await session.start()
    session.answer('left')
    expect([session.labels.history.length, session.labels.excludedIds.includes(1)]).toEqual([1, true])
    await settle()
    expect([session.labels.history, session.labels.excludedIds]).toEqual([[], []])
    expect(session.notice).toContain('Not assigned to you.')
    session.stop()
  })

  it('keeps labels of another experiment out of its counts and its history', async () => {
    const { session, sent, database } = createSession({
      service: {
        postLabels: (labels) => {
          sent.push(...labels)
          const [accepted, rejected] = labels.map((one) => one.request_id)
          const problem = { type: '', title: '', status: 409, detail: '' }
          const stored_answer = 'right' as const
          return Promise.resolve({
            accepted: [accepted!],
            rejected: [{ request_id: rejected!, problem, stored_answer }],
          })
        },
      },
    })
    const before = await Outbox.open({
      labeler: ann,
      readLabeler: () => Promise.resolve(ann),
      send: () => Promise.reject(new ServerUnreachable('offline')),
      database,
    })
    for (const id of [7, 8]) {
      const label = { request_id: `request-${id}`, comparison_id: id, answer: 'left' } as LabelSubmission
      const other = { ...comparison(id), experiment: 'walk' }
      await before.add({ label, comparison: other, change: 1, answered_at: '' })
    }
    before.close()
    await session.start()
    await settle()
    expect(sent.map((one) => one.comparison_id)).toEqual([7, 8])
    expect([session.progress.counts?.mine, session.labels.history]).toEqual([0, []])
    session.stop()
  })

  it('shows that requests are rejected once nothing is left to label', async () => {
    const problem = { type: '', title: '', status: 404, detail: 'It was renamed.' }
    const getNext = vi
      .fn<Service['getNext']>()
      .mockResolvedValueOnce({ comparisons: [1, 2, 3, 4].map(comparison), progress })
      .mockRejectedValue(new RequestRejected(problem))
    const getExperiment = vi.fn<Service['getExperiment']>().mockResolvedValueOnce(summary as never)
    getExperiment.mockRejectedValue(new RequestRejected(problem))
    const { session } = createSession({ service: { getNext, getExperiment } })
    await session.start()
    const kinds = [kind(session)]
    for (let i = 0; i < 4; i++) {
      session.answer('left')
      await settle()
      kinds.push(kind(session))
    }
    expect(kinds).toEqual(['label', 'label', 'label', 'label', 'failed'])
    session.stop()
  })

  it('counts a label once if its event comes before its receipt', async () => {
    let accept: () => void = () => undefined
    const postLabels: Service['postLabels'] = ([label]) =>
      new Promise((resolve) => {
        accept = () => resolve({ accepted: [label!.request_id], rejected: [] })
      })
    const { session } = createSession({ service: { postLabels } })
    await session.start()
    const counts: string[] = []
    const record = () => {
      const { mine, answered, waiting } = session.progress.counts!
      counts.push(`${mine} ${answered} ${waiting}`)
    }
    for (const answer of ['left', 'undo'] as const) {
      if (answer === 'undo') void session.undo()
      else session.answer(answer)
      await settle()
      record()
      const mine = answer === 'undo' ? 0 : 1
      const counted = { ...progress, mine, answered: mine, waiting: 9 - mine }
      sendSummary({ ...summary, progress: counted })
      record()
      accept()
      await settle()
      record()
    }
    expect(counts).toEqual([...Array(3).fill('1 1 8'), ...Array(3).fill('0 0 9')])
    session.stop()
  })

  it('counts a label that is given while an earlier one is removed from the outbox', async () => {
    const { session } = createSession()
    await session.start()
    let mine: number | undefined
    vi.spyOn(IDBObjectStore.prototype, 'delete').mockImplementationOnce(() => {
      session.answer('right')
      mine = session.progress.counts?.mine
      return {} as never
    })
    session.answer('left')
    await settle()
    expect(mine).toBe(2)
    session.stop()
  })

  it.each([
    [new Throttled('wait'), 'throttled'],
    [new ServerUnreachable('offline'), 'offline'],
  ] as const)('reports %s of a request for comparisons until one is answered', async (error, trouble) => {
    const getNext = vi.fn(() => Promise.resolve({ comparisons: [] as Comparison[], progress }))
    const { session } = createSession({ service: { getNext } })
    await session.start()
    getNext.mockRejectedValue(error)
    session.retry()
    await settle()
    expect([session.trouble, kind(session)]).toEqual([trouble, trouble])
    getNext.mockResolvedValue({ comparisons: [], progress })
    session.retry()
    await settle()
    expect([session.trouble, kind(session)]).toEqual([null, 'held'])
    session.stop()
  })

  it('stays throttled when a queue that is full sends no request', async () => {
    const comparisons = [1, 2, 3, 4].map(comparison)
    const getNext = vi.fn<Service['getNext']>().mockResolvedValueOnce({ comparisons, progress })
    getNext.mockRejectedValue(new Throttled('wait'))
    const { session } = createSession({ service: { getNext } })
    await session.start()
    session.answer('left')
    await settle()
    await session.undo()
    await session.queue.fill()
    expect([session.trouble, getNext.mock.calls.length]).toEqual(['throttled', 2])
    session.stop()
  })

  it('sends unsent labels with growing intervals while the service is polled', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
    const postLabels = vi.fn(() => Promise.reject<never>(new ServerUnreachable('offline')))
    const getExperiment = vi.fn(() => Promise.reject<never>(new ServerUnreachable('offline')))
    const { session } = createSession({ service: { postLabels, getExperiment } })
    const starting = session.start()
    await vi.advanceTimersByTimeAsync(0)
    await starting
    session.answer('left')
    await vi.advanceTimersByTimeAsync(60_000)
    expect(getExperiment.mock.calls.length).toBeGreaterThan(5)
    expect(postLabels.mock.calls.length).toBeLessThan(10)
    session.stop()
    vi.useRealTimers()
  })

  it('loads new comparisons without reporting them as held by others', async () => {
    const none = { comparisons: [], progress: { ...progress, waiting: 0 } }
    const loaded = (one: Comparison) => ({ comparison: one }) as LoadedComparison
    let respond: () => void = () => undefined
    let load: () => void = () => undefined
    const getNext = vi.fn<Service['getNext']>().mockResolvedValueOnce(none)
    const { session } = createSession({
      service: { getNext, getExperiment: () => Promise.resolve({ ...summary, progress: none.progress } as never) },
      clips: { comparison: (one: Comparison) => new Promise((resolve) => (load = () => resolve(loaded(one)))) },
    })
    await session.start()
    expect(kind(session)).toBe('idle')
    getNext.mockReturnValueOnce(
      new Promise((resolve) => (respond = () => resolve({ comparisons: [comparison(1)], progress }))),
    )
    sendSummary(summary)
    expect(kind(session)).toBe('idle')
    respond()
    await settle()
    expect(kind(session)).toBe('loading')
    getNext.mockResolvedValue({ comparisons: [], progress })
    load()
    await settle()
    expect(session.current?.comparison.id).toBe(1)
    session.stop()
  })

  it('checks again for comparisons held by others', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { session, free } = createSession({ most: 0 })
    await session.start()
    expect(kind(session)).toBe('held')
    free.most = 1
    await vi.advanceTimersByTimeAsync(10_000)
    vi.useRealTimers()
    await settle()
    expect(session.current?.comparison.id).toBe(1)
    expect(kind(session)).toBe('label')
    session.stop()
  })

  it('shows the end and releases all comparisons when the run finishes', async () => {
    const { session, released, idsAhead, free } = createSession()
    await session.start()
    free.most = 0
    sendSummary({ ...summary, phase: 'finished', message: 'finished', num_steps: 0 })
    await settle()
    expect([session.shown, kind(session), idsAhead()]).toEqual([null, 'finished', []])
    expect(released).toEqual(['lease-1', 'lease-2', 'lease-3', 'lease-4'])
    session.stop()
  })

  it('releases unlabelled comparisons when the page is closed', async () => {
    const { session, released } = createSession()
    await session.start()
    session.answer('left')
    await settle()
    session.stop()
    expect(released).toEqual(['lease-2', 'lease-3', 'lease-4', 'lease-5'])
  })
})

describe('leaving the page while it starts', () => {
  /** Leave the page at the first call of `wait`, then let that call continue. */
  async function leaveDuring(options: (wait: () => Promise<void>) => SessionOptions) {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
    let proceed = () => undefined as void
    const resumed = new Promise<void>((resolve) => (proceed = resolve))
    let reach = () => undefined as void
    const reached = new Promise<void>((resolve) => (reach = resolve))
    const getNext = vi.fn(() =>
      Promise.resolve({ comparisons: [comparison(1), comparison(2)], progress }),
    )
    const given = options(() => (reach(), resumed))
    const created = createSession({ ...given, service: { getNext, ...given.service } })
    const starting = created.session.start()
    await reached
    created.session.stop()
    proceed()
    await starting
    await vi.advanceTimersByTimeAsync(5 * MINUTE_MS)
    const numTimers = vi.getTimerCount()
    vi.useRealTimers()
    await settle()
    expect(numTimers).toBe(0)
    expect(FakeSource.open).toEqual([])
    expect(created.session.shown).toBeNull()
    expect(created.idsAhead()).toEqual([])
    return { ...created, getNext }
  }

  it('asks for nothing after the labeler', async () => {
    const { getNext, session } = await leaveDuring((wait) => ({
      user: { me: null, readMe: () => wait().then(() => ann) },
    }))
    expect(getNext).not.toHaveBeenCalled()
    expect(session.labels.isOpen).toBe(false)
  })

  it('releases leases that arrive later', async () => {
    const { released } = await leaveDuring((wait) => ({
      service: {
        getNext: () => wait().then(() => ({ comparisons: [comparison(1), comparison(2)], progress })),
      },
    }))
    expect(released).toEqual(['lease-1', 'lease-2'])
  })

  it('releases comparisons whose clips are being loaded', async () => {
    const { released, getNext } = await leaveDuring((wait) => ({
      clips: { comparison: (one: Comparison) => wait().then(() => ({ comparison: one })) },
    }))
    expect(released).toEqual(['lease-1', 'lease-2'])
    expect(getNext).toHaveBeenCalledTimes(1)
  })
})

describe('ranking', () => {
  const ranking = ({ shown }: LabellingSession) => (shown?.kind === 'ranking' ? shown : null)
  const shown = (session: LabellingSession) => ranking(session)?.screen.clips.map(({ clip }) => clip.hash) ?? null

  it('sends the order of the clips and those left out, then shows the next ones', async () => {
    const { session, sent, rankings } = createSession()
    session.size = 4
    await session.start()
    expect(shown(session)).toEqual(['left-1', 'right-1', 'left-2', 'right-2'])
    session.order([['right-2'], ['left-1', 'right-1']])
    session.answer('left')
    expect(await session.rank()).toBe(true)
    expect(rankings).toMatchObject([
      { groups: [['right-2'], ['left-1', 'right-1']], left_out: ['left-2'], details: { screen: 4 } },
    ])
    expect(sent).toEqual([])
    expect(ranking(session)?.groups).toEqual([])
    session.stop()
  })

  it('shows the other clip of a comparison of which one was shown on the next screen', async () => {
    const { session } = createSession()
    session.size = 3
    await session.start()
    expect(shown(session)).toEqual(['left-1', 'right-1', 'left-2'])
    session.order(shown(session)!.map((hash) => [hash]))
    await session.rank()
    expect(shown(session)).toEqual(['left-2', 'right-2', 'left-3'])
    session.stop()
  })

  it('keeps the order under one id until it is saved', async () => {
    const { session, rankings, free } = createSession()
    session.size = 5
    await session.start()
    session.order([['left-1'], ['right-1']])
    free.isOffline = true
    expect(await session.rank()).toBe(false)
    expect(ranking(session)?.groups).toEqual([['left-1'], ['right-1']])
    expect(session.notice).toContain('not saved')
    free.isOffline = false
    expect(await session.rank()).toBe(true)
    expect(rankings).toHaveLength(1)
    session.stop()
  })

  it.each([
    [403, true],
    [409, false],
  ])('after a rejection with status %i keeps the order: %s', async (status, isKept) => {
    const { session, free } = createSession()
    session.size = 5
    await session.start()
    session.order([['left-1'], ['right-1']])
    free.status = status
    expect(await session.rank()).toBe(false)
    expect(ranking(session)?.groups).toEqual(isKept ? [['left-1'], ['right-1']] : [])
    session.stop()
  })

  it('shows a pair if a single comparison is open', async () => {
    const { session, sent } = createSession({ most: 1 })
    session.size = 5
    await session.start()
    expect([session.current?.comparison.id, kind(session)]).toEqual([1, 'pair only'])
    session.answer('equal')
    await vi.waitFor(() => expect(sent).toMatchObject([{ comparison_id: 1, answer: 'equal' }]))
    session.stop()
  })

  it('keeps the order on screen while another account is signed in', async () => {
    let me: { name: string } = bob
    const { session, rankings } = createSession({ user: { readMe: () => Promise.resolve(me) } })
    session.size = 4
    await session.start()
    const before = shown(session)
    session.order([['left-1'], ['left-2']])
    expect(await session.rank()).toBe(false)
    expect([rankings, shown(session), ranking(session)?.groups]).toEqual([[], before, [['left-1'], ['left-2']]])
    expect(session.notice).toContain('Sign in as ann.')
    me = ann
    expect(await session.rank()).toBe(true)
    expect(rankings).toMatchObject([{ groups: [['left-1'], ['left-2']] }])
    session.stop()
  })

  it('reviews and withdraws nothing while a ranking is being saved', async () => {
    let store: () => void = () => undefined
    const postRanking: Service['postRanking'] = () =>
      new Promise((resolve) => (store = () => resolve({ comparison_ids: [2] })))
    const { session, sent, idsAhead } = createSession({ service: { postRanking } })
    await session.start()
    session.answer('left')
    session.setSize(3)
    await settle()
    expect(shown(session)).toEqual(['left-2', 'right-2', 'left-3'])
    session.order([['left-2'], ['right-2']])
    const saving = session.rank()
    session.review(session.labels.history[0]!.comparison)
    expect(await session.undo()).toBe(false)
    await settle()
    store()
    await saving
    await settle()
    expect(shown(session)).toEqual(['left-3', 'right-3', 'left-4'])
    expect(idsAhead()).toEqual([5, 6, 7])
    expect(sent.map(({ answer }) => answer)).toEqual(['left'])
    session.stop()
  })

  it('keeps the screen if the labels of a withdrawn ranking were replaced in another tab', async () => {
    const label = { comparison: { ...comparison(9), answer: 'left' }, ranking: 'r' }
    const { session } = createSession({
      service: {
        getMyLabels: () => Promise.resolve([label] as never),
        withdrawRanking: () => Promise.resolve([]),
      },
    })
    await session.start()
    expect([await session.undo(), session.current?.comparison.id]).toEqual([false, 1])
    expect(session.notice).toContain('in another tab')
    session.stop()
  })

  it('keeps every lease when the number of clips changes', async () => {
    const { session, idsAhead, released } = createSession({ most: 4 })
    await session.start()
    session.setSize(4)
    await settle()
    expect(shown(session)).toEqual(['left-1', 'right-1', 'left-2', 'right-2'])
    session.setSize(2)
    await settle()
    expect([session.current?.comparison.id, idsAhead()]).toEqual([1, [2, 3, 4]])
    session.stop()
    expect(released).toEqual(['lease-1', 'lease-2', 'lease-3', 'lease-4'])
  })
})
