import { expect, it, vi } from 'vitest'

import { Leases } from '../src/lib/leases'

it('are renewed once a minute while some are held, and released at the end', async () => {
  vi.useFakeTimers()
  let held: string[] = ['a', 'b', 'c']
  const [lost, released] = [vi.fn(), vi.fn(() => Promise.resolve())]
  const renew = vi.fn(() => Promise.resolve({ renewed: {}, lost: ['b'] }))
  const leases = new Leases({ held: () => held, renew, release: released, lost })
  leases.start()
  await vi.advanceTimersByTimeAsync(125_000)
  expect(renew.mock.calls).toEqual([[held], [held]])
  expect(lost).toHaveBeenCalledWith(new Set(['b']))
  held = []
  await vi.advanceTimersByTimeAsync(60_000)
  expect(renew).toHaveBeenCalledTimes(2)
  held = ['d']
  leases.stop()
  await vi.advanceTimersByTimeAsync(600_000)
  expect([renew.mock.calls.length, released.mock.calls]).toEqual([2, [[['d']]]])
  vi.useRealTimers()
})
