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
    lost: (gone) => lost.push([...gone]),
  })
  return { leases, renew, lost, released }
}

describe('leases', () => {
  it('are renewed, and what went to others is told', async () => {
    const { leases, renew, lost } = leasesOf(['a', 'b', 'c'], ['a', 'c'])
    await leases.beat()
    expect(renew).toHaveBeenCalledWith(['a', 'b', 'c'])
    expect(lost).toEqual([['b']])
  })

  it('ask nothing while nothing is at hand', async () => {
    const { leases, renew } = leasesOf([], [])
    await leases.beat()
    expect(renew).not.toHaveBeenCalled()
  })

  it('beat once a minute from the start to the end, and are given back then', async () => {
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

  it('take an absent service for nothing lost', async () => {
    const lost = vi.fn()
    const away = () => Promise.reject(new Error('gone'))
    const leases = new Leases({ held: () => ['a'], renew: away, release: nothing, lost })
    await leases.beat()
    expect(lost).not.toHaveBeenCalled()
  })
})
