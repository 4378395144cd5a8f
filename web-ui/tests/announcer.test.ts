import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { Announcer } from '../src/lib/announcer.svelte'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

describe('announcer', () => {
  it('announces messages of the same moment together', () => {
    const announcer = new Announcer()
    announcer.announce('Left is better.')
    announcer.announce('Nothing to label right now.')
    vi.advanceTimersByTime(150)
    expect(announcer.text).toBe('Left is better. Nothing to label right now.')
  })

  it('empties the region before an equal message so that it is announced again', () => {
    const announcer = new Announcer()
    announcer.announce('Equal.')
    vi.advanceTimersByTime(150)
    announcer.announce('Equal.')
    expect(announcer.text).toBe('')
    vi.advanceTimersByTime(150)
    expect(announcer.text).toBe('Equal.')
  })

  it('removes a message after a while', () => {
    const announcer = new Announcer()
    announcer.announce('Label withdrawn.')
    vi.advanceTimersByTime(6_000)
    expect(announcer.text).toBe('')
  })
})
