/** What a browser has and Node lacks: a document that can be hidden, and event streams. */

import { vi } from 'vitest'

import type { ExperimentSummary } from '../src/lib/api-types'

export class FakeSource extends EventTarget {
  static readonly CLOSED = 2
  static all: FakeSource[] = []
  readyState = 1
  onopen = () => undefined
  onerror = () => undefined

  constructor(readonly url: string) {
    super()
    FakeSource.all.push(this)
  }

  static get open(): FakeSource[] {
    return FakeSource.all.filter(({ readyState }) => readyState !== FakeSource.CLOSED)
  }

  close(): void {
    this.readyState = FakeSource.CLOSED
  }

  send(type: string, content: unknown): void {
    this.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(content) }))
  }
}

const page = Object.assign(new EventTarget(), { hidden: false })

export function stubBrowser(): void {
  FakeSource.all = []
  page.hidden = false
  vi.stubGlobal('EventSource', FakeSource)
  vi.stubGlobal('document', page)
}

export function setHidden(hidden: boolean): void {
  page.hidden = hidden
  page.dispatchEvent(new Event('visibilitychange'))
}

/** Send a summary to every page that listens. */
export const sendSummary = (summary: Partial<ExperimentSummary>): void =>
  FakeSource.open.forEach((source) => source.send('experiment', summary))

export const settle = (): Promise<void> => new Promise((done) => setTimeout(done, 20))
