import 'fake-indexeddb/auto'
import { describe, expect, it, vi } from 'vitest'

import type { LoadedClip } from '../src/lib/clips'
import { Labelling, type Service } from '../src/lib/labelling.svelte'
import type { Comparison, NewLabel, Progress } from '../src/lib/types'

const MINUTE_MS = 60_000
const progress: Progress = { mine: 0, answered: 0, asked: 9, target: null, waiting: 9, message: '' }
const clip = (hash: string) => ({ hash }) as LoadedClip['clip']
const comparison = (id: number): Comparison => ({
  id,
  experiment: 'hop',
  asked_at_step: 0,
  left: clip(`left-${id}`),
  right: clip(`right-${id}`),
  answer: null,
  lease: `lease-${id}`,
})

/** A service with comparisons 1, 2, 3 …; `lost` are leases that it has given to others. */
function begin({ lost = [], most = Infinity }: { lost?: string[]; most?: number } = {}) {
  const sent: NewLabel[] = []
  const released: string[] = []
  let given = 0
  const free = { most }
  const service: Service = {
    getNext: (_, limit) => {
      const length = Math.min(limit, free.most - given)
      const comparisons = Array.from({ length }, () => comparison(++given))
      return Promise.resolve({ comparisons, progress })
    },
    getComparison: (id) => Promise.resolve(comparison(id)),
    getMyLabels: () => Promise.resolve([]),
    getExperiment: () => Promise.reject(new Error('not asked here')),
    postLabels: (labels) => {
      sent.push(...labels)
      return Promise.resolve({ accepted: labels.map((one) => one.request_id), rejected: [] })
    },
    listen: () => () => undefined,
    renewLeases: () => Promise.resolve({ renewed: {}, lost }),
    releaseLeases: (leases) => (released.push(...leases), Promise.resolve()),
  }
  const loaded = (one: LoadedClip['clip']) => ({ kind: 'video', clip: one, url: '' }) as LoadedClip
  const labelling = new Labelling('hop', () => ({}), {
    service,
    clips: {
      clip: (one) => Promise.resolve(loaded(one)),
      comparison: (one) =>
        Promise.resolve({ comparison: one, left: loaded(one.left), right: loaded(one.right) }),
    },
    database: new IDBFactory(),
  })
  const idsAhead = () => labelling.ahead.map((ready) => ready.comparison.id)
  return { labelling, sent, released, idsAhead, free }
}

const settle = () => new Promise((done) => setTimeout(done, 20))

describe('labelling under leases', () => {
  it('sends with each answer its lease and which clip was on the left', async () => {
    const { labelling, sent } = begin()
    await labelling.start()
    labelling.answer('left')
    await settle()
    expect(sent).toMatchObject([{ comparison_id: 1, lease: 'lease-1', left_hash: 'left-1' }])
    labelling.stop()
  })

  it('sends an answer that is given again without the lease, which has ended', async () => {
    const { labelling, sent } = begin()
    await labelling.start()
    labelling.answer('left')
    labelling.undo()
    await settle()
    labelling.answer('right')
    await settle()
    expect(sent.map(({ answer, lease }) => [answer, lease])).toEqual([
      ['left', 'lease-1'],
      [null, null],
      ['right', null],
    ])
    labelling.stop()
  })

  it('drops quietly what went to others, but for what is on screen', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const { labelling, sent, idsAhead } = begin({ lost: ['lease-1', 'lease-3'] })
    await labelling.start()
    expect(idsAhead()).toEqual([2, 3, 4])
    await vi.advanceTimersByTimeAsync(MINUTE_MS)
    vi.useRealTimers()
    await settle()
    expect(labelling.current?.comparison.id).toBe(1)
    expect(idsAhead()).toEqual([2, 4, 5])
    expect(labelling.notice).toBe('')
    labelling.answer('equal')
    await settle()
    expect(sent).toMatchObject([{ comparison_id: 1, answer: 'equal', lease: 'lease-1' }])
    labelling.stop()
  })

  it('looks again for what others have in hand', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { labelling, free } = begin({ most: 0 })
    await labelling.start()
    expect([labelling.isIdle, labelling.isLeftOver]).toEqual([true, true])
    free.most = 1
    await vi.advanceTimersByTimeAsync(10_000)
    vi.useRealTimers()
    await settle()
    expect(labelling.current?.comparison.id).toBe(1)
    expect(labelling.isLeftOver).toBe(false)
    labelling.stop()
  })

  it('gives back what was not answered when the page is left', async () => {
    const { labelling, released } = begin()
    await labelling.start()
    labelling.answer('left')
    await settle()
    labelling.stop()
    expect(released).toEqual(['lease-2', 'lease-3', 'lease-4', 'lease-5'])
  })
})
