import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { listen } from '../src/lib/events'

class FakeSource extends EventTarget {
  static readonly CLOSED = 2
  static all: FakeSource[] = []
  readyState = 1
  onopen = () => undefined
  onerror = () => undefined

  constructor(readonly url: string) {
    super()
    FakeSource.all.push(this)
  }

  close(): void {
    this.readyState = FakeSource.CLOSED
  }
}

const openSources = () => FakeSource.all.filter(({ readyState }) => readyState !== FakeSource.CLOSED)

const page = Object.assign(new EventTarget(), { hidden: false })

function setHidden(hidden: boolean): void {
  page.hidden = hidden
  page.dispatchEvent(new Event('visibilitychange'))
}

describe('the event stream', () => {
  beforeEach(() => {
    vi.useFakeTimers()
    vi.stubGlobal('EventSource', FakeSource)
    vi.stubGlobal('document', page)
    FakeSource.all = []
    page.hidden = false
  })

  afterEach(() => {
    vi.unstubAllGlobals()
    vi.useRealTimers()
  })

  it('is closed while the page is hidden, and opened when it is visible again', () => {
    const states: boolean[] = []
    const stop = listen('hop', { live: (isLive) => states.push(isLive) })
    FakeSource.all[0]!.onopen()
    setHidden(true)
    expect(openSources()).toEqual([])
    setHidden(false)
    expect(openSources()).toHaveLength(1)
    FakeSource.all[1]!.onopen()
    expect(states).toEqual([true, false, true])
    stop()
    setHidden(false)
    expect(openSources()).toEqual([])
  })

  it('is not opened by a page in a background tab, nor after an error of the service', () => {
    page.hidden = true
    const stop = listen(null, {})
    expect(FakeSource.all).toEqual([])
    setHidden(false)
    const [source] = FakeSource.all
    source!.readyState = FakeSource.CLOSED
    source!.onerror()
    setHidden(true)
    vi.advanceTimersByTime(60_000)
    expect(openSources()).toEqual([])
    setHidden(false)
    vi.advanceTimersByTime(60_000)
    expect(openSources()).toHaveLength(1)
    stop()
  })
})
