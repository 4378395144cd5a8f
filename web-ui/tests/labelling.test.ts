import 'fake-indexeddb/auto'
import { describe, expect, it, vi } from 'vitest'

import type { LoadedClip } from '../src/lib/clips'
import type { EventHandlers } from '../src/lib/events'
import { LabellingSession, type Service } from '../src/lib/labelling.svelte'
import type { Comparison, ExperimentSummary, LabelSubmission, Progress } from '../src/lib/api-types'

const MINUTE_MS = 60_000
const progress: Progress = { mine: 0, answered: 0, asked: 9, target: null, waiting: 9, message: '' }
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

/** Create a session of a service with comparisons 1, 2, 3…; `lost` are leases that others hold. */
function createSession({ lost = [], most = Infinity }: { lost?: string[]; most?: number } = {}) {
  const sent: LabelSubmission[] = []
  const released: string[] = []
  const events: EventHandlers = {}
  let numLeased = 0
  const free = { most }
  const service: Service = {
    getNext: (_, limit) => {
      const length = Math.min(limit, free.most - numLeased)
      const comparisons = Array.from({ length }, () => comparison(++numLeased))
      return Promise.resolve({ comparisons, progress })
    },
    getComparison: (id) => Promise.resolve(comparison(id)),
    getMyLabels: () => Promise.resolve([]),
    getExperiment: () => Promise.reject(new Error('not used here')),
    getLabelEffect: () => Promise.reject(new Error('not used here')),
    postLabels: (labels) => {
      sent.push(...labels)
      return Promise.resolve({ accepted: labels.map((one) => one.request_id), rejected: [] })
    },
    listen: (_, handlers) => {
      Object.assign(events, handlers)
      return () => undefined
    },
    renewLeases: () => Promise.resolve({ renewed: {}, lost }),
    releaseLeases: (leases) => (released.push(...leases), Promise.resolve()),
  }
  const loaded = (one: LoadedClip['clip']) => ({ kind: 'video', clip: one, url: '' }) as LoadedClip
  const session = new LabellingSession('hop', () => ({}), {
    service,
    clips: {
      clip: (one) => Promise.resolve(loaded(one)),
      comparison: (one) =>
        Promise.resolve({ comparison: one, left: loaded(one.left), right: loaded(one.right) }),
    },
    database: new IDBFactory(),
  })
  const idsAhead = () => session.queue.items.map((ready) => ready.comparison.id)
  return { session, sent, released, idsAhead, free, events }
}

const settle = () => new Promise((done) => setTimeout(done, 20))

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
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
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

  it('checks again for comparisons held by others', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { session, free } = createSession({ most: 0 })
    await session.start()
    expect([session.isIdle, session.isHeldByOthers]).toEqual([true, true])
    free.most = 1
    await vi.advanceTimersByTimeAsync(10_000)
    vi.useRealTimers()
    await settle()
    expect(session.current?.comparison.id).toBe(1)
    expect(session.isHeldByOthers).toBe(false)
    session.stop()
  })

  it('releases the comparisons behind the one on screen when the run finishes', async () => {
    const { session, sent, released, idsAhead, events, free } = createSession()
    await session.start()
    free.most = 0
    events.experiment?.({ phase: 'finished', progress, latest_episode: null } as ExperimentSummary)
    await settle()
    expect(idsAhead()).toEqual([])
    expect(released).toEqual(['lease-2', 'lease-3', 'lease-4'])
    session.answer('left')
    await settle()
    expect(sent).toMatchObject([{ comparison_id: 1, lease: 'lease-1' }])
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
