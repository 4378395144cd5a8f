import 'fake-indexeddb/auto'
import { describe, expect, it, vi } from 'vitest'
import { RequestRejected, ServerUnreachable } from '../src/lib/api'
import { troubleOf } from '../src/lib/page-state'
import { countUnsent, Outbox } from '../src/lib/outbox'
import type { OutboxOptions, UnsentLabel } from '../src/lib/outbox'
import type { LabelSubmission, LabelReceipt } from '../src/lib/api-types'

const unsent = (id: number): UnsentLabel =>
  ({
    label: { request_id: `request-${id}`, comparison_id: id, answer: 'left' },
    comparison: { id },
    change: 1,
    answered_at: '2026-01-01T00:00:00Z',
  }) as unknown as UnsentLabel

const ann = { name: 'ann', home: 'here' }
const bob = { name: 'bob', home: 'here' }
const otherHome = { name: 'ann', home: 'elsewhere' }

const acceptAll = (sent: LabelSubmission[][]) => (labels: LabelSubmission[]) => {
  sent.push(labels)
  return Promise.resolve({ accepted: labels.map((one) => one.request_id), rejected: [] } as LabelReceipt)
}

const open = (options: Partial<OutboxOptions>) =>
  Outbox.open({
    labeler: ann,
    readLabeler: () => Promise.resolve(options.labeler ?? ann),
    send: acceptAll([]),
    ...options,
  })

describe('Outbox', () => {
  it('sends labels in order and removes acknowledged ones', async () => {
    const sent: LabelSubmission[][] = []
    const outbox = await open({ send: acceptAll(sent), database: new IDBFactory() })
    await outbox.add(unsent(1))
    await outbox.add(unsent(2))
    expect(sent.flat().map((one) => one.comparison_id)).toEqual([1, 2])
    expect(outbox.length).toBe(0)
    outbox.close()
  })

  it('keeps labels over a reload while the service is unreachable', async () => {
    const database = new IDBFactory()
    const fail = () => Promise.reject(new ServerUnreachable('unreachable'))
    const before = await open({ send: fail, database })
    await before.add(unsent(7))
    expect(before.failure).toBeInstanceOf(ServerUnreachable)
    before.close()
    const sent: LabelSubmission[][] = []
    const after = await open({ send: acceptAll(sent), database })
    await after.flush()
    expect(sent.flat().map((one) => one.request_id)).toEqual(['request-7'])
    expect(after.length).toBe(0)
    after.close()
  })

  it('keeps labels that are rejected because another account was just signed in', async () => {
    const problem = { type: 'urn:rl-teacher:not-leased', title: '', status: 409, detail: '' }
    const rejected = vi.fn()
    let labeler = ann
    const outbox = await open({
      readLabeler: () => Promise.resolve(labeler),
      send: ([label]) => {
        const isOwn = label!.comparison_id === 1
        const receipt: LabelReceipt = {
          accepted: isOwn ? [label!.request_id] : [],
          rejected: isOwn ? [] : [{ request_id: label!.request_id, problem }],
        }
        return Promise.resolve(receipt)
      },
      rejected,
      database: new IDBFactory(),
    })
    await outbox.add(unsent(1))
    labeler = bob
    await outbox.add(unsent(2))
    expect([outbox.length, troubleOf(outbox.failure)]).toEqual([1, 'signed out'])
    expect(rejected).not.toHaveBeenCalled()
    outbox.close()
  })

  it('sends labels that the browser does not store after it was closed', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const database = new IDBFactory()
    vi.spyOn(database, 'open').mockImplementation(() => {
      throw new Error('blocked')
    })
    const sent: LabelSubmission[][] = []
    const send = vi.fn(acceptAll(sent)).mockRejectedValueOnce(new ServerUnreachable('offline'))
    send.mockRejectedValueOnce(new ServerUnreachable('offline'))
    const outbox = await open({ send, database })
    await outbox.add(unsent(1))
    outbox.close()
    await vi.advanceTimersByTimeAsync(15_000)
    vi.useRealTimers()
    expect(sent.flat().map((one) => one.comparison_id)).toEqual([1])
  })

  it('reports the answer of another tab and the warning', async () => {
    const problem = { type: 'urn:rl-teacher:already-answered', title: '', status: 409, detail: '' }
    const receipt: LabelReceipt = {
      accepted: [],
      rejected: [{ request_id: 'request-3', problem, stored_answer: 'right' }],
      warning: 'too fast',
    }
    const reported: unknown[] = []
    const outbox = await open({
      send: () => Promise.resolve(receipt),
      rejected: (label, { status }, stored) => reported.push(label.label.request_id, status, stored),
      warned: (warning) => reported.push(warning),
      database: new IDBFactory(),
    })
    await outbox.add(unsent(3))
    expect(reported).toEqual(['request-3', 409, 'right', 'too fast'])
    expect(outbox.length).toBe(0)
    outbox.close()
  })

  const rejection = (status: number) =>
    new RequestRejected({ type: 'about:blank', title: '', status, detail: 'rejected' })

  it.each([400, 413, 422])('drops only the label that is rejected with status %i', async (status) => {
    const database = new IDBFactory()
    const sent: LabelSubmission[][] = []
    const rejected: number[] = []
    const outbox = await open({
      send: (labels) =>
        labels.some((one) => one.comparison_id === 2)
          ? Promise.reject(rejection(status))
          : acceptAll(sent)(labels),
      rejected: ({ comparison }) => rejected.push(comparison.id),
      database,
    })
    await Promise.all([1, 2, 3].map((id) => outbox.add(unsent(id))))
    await outbox.flush()
    expect(sent.flat().map((one) => one.comparison_id)).toEqual([1, 3])
    expect(rejected).toEqual([2])
    outbox.close()
  })

  it.each([403, 404, 409])('keeps labels when the request fails with status %i', async (status) => {
    const database = new IDBFactory()
    const rejected = vi.fn()
    const send = vi.fn(() => Promise.reject(rejection(status)))
    const outbox = await open({ send, rejected, database })
    await outbox.add(unsent(1))
    expect([outbox.length, send.mock.calls.length]).toEqual([1, 1])
    expect(outbox.failure).toBeInstanceOf(RequestRejected)
    expect(rejected).not.toHaveBeenCalled()
    outbox.close()
  })

  it('leaves labels of other labelers and homes in the database until they are signed in', async () => {
    const database = new IDBFactory()
    const fail = () => Promise.reject(new ServerUnreachable('unreachable'))
    const before = await open({ send: fail, database })
    await before.add(unsent(1))
    before.close()
    expect([await countUnsent(ann, database), await countUnsent(bob, database)]).toEqual([1, 0])
    for (const [labeler, expected] of [[bob, []], [otherHome, []], [ann, ['request-1']]] as const) {
      const sent: LabelSubmission[][] = []
      const outbox = await open({ labeler, send: acceptAll(sent), database })
      await outbox.flush()
      expect([outbox.length, sent.flat().map((one) => one.request_id)]).toEqual([0, expected])
      outbox.close()
    }
  })

  it.each([bob, otherHome])('keeps labels while $name of the home $home is signed in', async (other) => {
    const sent: LabelSubmission[][] = []
    let signedIn = other
    const readLabeler = () => Promise.resolve(signedIn)
    const outbox = await open({ readLabeler, send: acceptAll(sent), database: new IDBFactory() })
    await outbox.add(unsent(1))
    expect([outbox.length, troubleOf(outbox.failure), sent]).toEqual([1, 'signed out', []])
    signedIn = ann
    await outbox.flush()
    expect([outbox.length, outbox.failure, sent.length]).toEqual([0, null, 1])
    outbox.close()
  })

  it('checks who is signed in after 10 s and after each failure', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    const readLabeler = vi.fn(() => Promise.resolve(ann))
    const send = vi.fn(acceptAll([]))
    const outbox = await open({ readLabeler, send, database: new IDBFactory() })
    const numChecksAfter = async (id: number) => {
      await outbox.add(unsent(id))
      return readLabeler.mock.calls.length
    }
    expect([await numChecksAfter(1), await numChecksAfter(2)]).toEqual([1, 1])
    vi.advanceTimersByTime(10_000)
    expect(await numChecksAfter(3)).toBe(2)
    send.mockRejectedValueOnce(new ServerUnreachable('unreachable'))
    await numChecksAfter(4)
    await outbox.flush()
    expect([outbox.length, readLabeler.mock.calls.length]).toEqual([0, 3])
    vi.useRealTimers()
    outbox.close()
  })

  it('sends labels that are given right before it is closed', async () => {
    const database = new IDBFactory()
    const sent: LabelSubmission[][] = []
    const outbox = await open({ send: acceptAll(sent), database })
    const adding = [1, 2].map((id) => outbox.add(unsent(id)))
    outbox.close()
    await Promise.all(adding)
    await vi.waitUntil(async () => (await countUnsent(ann, database)) === 0)
    expect(sent.flat().map((one) => one.comparison_id)).toEqual([1, 2])
  })

  it('removes labels that are acknowledged before they are stored', async () => {
    const database = new IDBFactory()
    const outbox = await open({ database })
    const adding = outbox.add(unsent(1))
    await outbox.flush()
    await adding
    expect([outbox.length, await countUnsent(ann, database)]).toEqual([0, 0])
    outbox.close()
  })

  it('reports that labels cannot be stored', async () => {
    const database = new IDBFactory()
    let isDurable = true
    const whenSent: boolean[] = []
    const outbox = await open({
      database,
      changed: () => (isDurable = outbox.isDurable),
      send: (labels) => (whenSent.push(isDurable), acceptAll([])(labels)),
    })
    vi.spyOn(IDBObjectStore.prototype, 'add').mockImplementationOnce(() => {
      throw new Error('The disk is full.')
    })
    await outbox.add(unsent(1))
    expect(whenSent).toEqual([false])
    outbox.close()
  })

  it('does not retry after it was closed', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    let fail: (error: Error) => void = () => undefined
    const send = () => new Promise<never>((_, reject) => (fail = reject))
    const outbox = await open({ send, database: new IDBFactory() })
    const adding = outbox.add(unsent(1))
    await vi.waitUntil(() => fail.length > 0)
    outbox.close()
    fail(new ServerUnreachable('unreachable'))
    await adding
    expect(vi.getTimerCount()).toBe(0)
    vi.useRealTimers()
  })
})
