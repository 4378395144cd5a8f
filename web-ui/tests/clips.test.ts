import { expect, it, vi } from 'vitest'

import type { Clip } from '../src/lib/api-types'
import { LabellingSession } from '../src/lib/labelling.svelte'

const CACHE_SIZE = 60

it('keeps as many videos in memory as one page, whatever pages were visited', async () => {
  vi.stubGlobal('fetch', () => Promise.resolve(new Response('video')))
  const created = vi.spyOn(URL, 'createObjectURL')
  const revoked = vi.spyOn(URL, 'revokeObjectURL')
  for (const name of ['hop', 'walk']) {
    const { clips } = new LabellingSession(name)
    for (let i = 0; i < 40; i++) await clips.clip({ kind: 'video', url: `/${name}/${i}` } as Clip)
  }
  expect(created.mock.calls.length - revoked.mock.calls.length).toBe(CACHE_SIZE)
  vi.unstubAllGlobals()
})
