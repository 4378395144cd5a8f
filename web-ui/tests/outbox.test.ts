import 'fake-indexeddb/auto'
import { describe, expect, it } from 'vitest'
import { ServerAway } from '../src/lib/api'
import { Outbox } from '../src/lib/outbox'
import type { Unsent } from '../src/lib/outbox'
import type { NewLabel, Receipt } from '../src/lib/types'

const unsent = (id: number): Unsent =>
  ({
    label: { request_id: `request-${id}`, comparison_id: id, answer: 'left' },
    comparison: { id },
    change: 1,
    answered_at: '2026-01-01T00:00:00Z',
  }) as unknown as Unsent

const acceptAll = (sent: NewLabel[][]) => (labels: NewLabel[]) => {
  sent.push(labels)
  return Promise.resolve({ accepted: labels.map((one) => one.request_id), rejected: [] } as Receipt)
}

describe('the outbox', () => {
  it('sends answers in their order and forgets what was acknowledged', async () => {
    const sent: NewLabel[][] = []
    const outbox = await Outbox.open({ send: acceptAll(sent), database: new IDBFactory() })
    await outbox.add(unsent(1))
    await outbox.add(unsent(2))
    expect(sent.flat().map((one) => one.comparison_id)).toEqual([1, 2])
    expect(outbox.length).toBe(0)
    outbox.close()
  })

  it('keeps answers over a reload while the service is away', async () => {
    const database = new IDBFactory()
    const away = () => Promise.reject(new ServerAway('gone'))
    const before = await Outbox.open({ send: away, database })
    await before.add(unsent(7))
    expect(before.delivery).toBe('away')
    before.close()
    const sent: NewLabel[][] = []
    const after = await Outbox.open({ send: acceptAll(sent), database })
    await after.flush()
    expect(sent.flat().map((one) => one.request_id)).toEqual(['request-7'])
    expect(after.length).toBe(0)
    after.close()
  })
})
