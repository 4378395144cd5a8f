import { afterEach, expect, it, vi } from 'vitest'

import type { Clip } from '../src/lib/api-types'
import { clipLoader } from '../src/lib/clips'
import { LabellingSession } from '../src/lib/labelling.svelte'

const CACHE_SIZE = 60

const fetched = vi.fn(() => Promise.resolve(new Response('video')))
const revoked = vi.spyOn(URL, 'revokeObjectURL')
const clipOf = (url: string) => ({ kind: 'video', url }) as Clip

afterEach(() => void vi.unstubAllGlobals())

it('keeps as many videos in memory as one page, whatever pages were visited', async () => {
  vi.stubGlobal('fetch', fetched)
  const urls = ['hop', 'walk'].flatMap((name) => Array.from({ length: 40 }, (_, i) => `/${name}/${i}`))
  for (const url of urls) await new LabellingSession(url.split('/')[1]!).clips.clip(clipOf(url))
  expect(fetched).toHaveBeenCalledTimes(80)
  for (const url of urls.slice(-CACHE_SIZE)) await clipLoader.clip(clipOf(url))
  expect(fetched).toHaveBeenCalledTimes(80)
  await clipLoader.clip(clipOf(urls[0]!))
  expect(fetched).toHaveBeenCalledTimes(81)
})

it('keeps the address of a video that a page may still show', async () => {
  vi.stubGlobal('fetch', fetched)
  const shown = await clipLoader.clip(clipOf('/shown'))
  for (let i = 0; i <= CACHE_SIZE; i++) await clipLoader.clip(clipOf(`/later/${i}`))
  expect(revoked).not.toHaveBeenCalledWith((shown as { url: string }).url)
})
