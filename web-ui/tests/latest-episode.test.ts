import { expect, it } from 'vitest'

import type { Episode } from '../src/lib/api-types'
import type { LoadedClip } from '../src/lib/clips'
import { LatestEpisode } from '../src/lib/latest-episode.svelte'

it('shows the newer of two episodes if the clip of the older one cannot be loaded', async () => {
  const loads = new Map<string, { load: (clip: LoadedClip) => void; fail: (error: Error) => void }>()
  const latest = new LatestEpisode({
    clip: ({ hash }) => new Promise((load, fail) => loads.set(hash, { load, fail })),
  })
  const showing = ['older', 'newer'].map((hash) => latest.show({ clip: { hash } } as Episode))
  loads.get('older')!.fail(new Error('timeout'))
  await showing[0]
  loads.get('newer')!.load({} as LoadedClip)
  await showing[1]
  expect(latest.current?.episode.clip.hash).toBe('newer')
})
