import { describe, expect, it, vi } from 'vitest'

import { Leases } from '../src/lib/leases'

const nothing = () => Promise.resolve()

function leasesOf(held: string[], alive: string[]) {
  const lost: string[][] = []
  const released: string[][] = []
  const renew = vi.fn((asked: readonly string[]) =>
    Promise.resolve({
      renewed: Object.fromEntries(alive.map((one) => [one, '2026-01-01T00:05:00Z'])),
      lost: asked.filter((one) => !alive.includes(one)),
    }),
  )
  const leases = new Leases({
    held: () => held,
    renew,
    release: (given) => (released.push([...given]), nothing()),
    lost: (ids) => lost.push([...ids]),
  })
  return { leases, renew, lost, released }
}

describe('Leases', () => {
  it('renews held leases and reports lost ones', async () => {
    const { leases, renew, lost } = leasesOf(['a', 'b', 'c'], ['a', 'c'])
    await leases.renew()
    expect(renew).toHaveBeenCalledWith(['a', 'b', 'c'])
    expect(lost).toEqual([['b']])
  })

  it('sends no request without held leases', async () => {
    const { leases, renew } = leasesOf([], [])
    await leases.renew()
    expect(renew).not.toHaveBeenCalled()
  })

  it('renews once a minute until it is stopped, then releases', async () => {
    vi.useFakeTimers()
    const { leases, renew, released } = leasesOf(['a'], ['a'])
    leases.start()
    await vi.advanceTimersByTimeAsync(185_000)
    expect(renew).toHaveBeenCalledTimes(3)
    leases.stop()
    await vi.advanceTimersByTimeAsync(600_000)
    expect(renew).toHaveBeenCalledTimes(3)
    expect(released).toEqual([['a']])
    vi.useRealTimers()
  })

  it('reports no lost leases while the service is unreachable', async () => {
    const lost = vi.fn()
    const fail = () => Promise.reject(new Error('unreachable'))
    const leases = new Leases({ held: () => ['a'], renew: fail, release: nothing, lost })
    await leases.renew()
    expect(lost).not.toHaveBeenCalled()
  })
})
