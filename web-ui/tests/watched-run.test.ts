import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import type { Episode, ExperimentDetail } from '../src/lib/api-types'
import type { LoadedClip } from '../src/lib/clips'
import { WatchedRun } from '../src/lib/watched-run.svelte'
import { sendSummary, settle, stubBrowser } from './fakes'

beforeEach(stubBrowser)
afterEach(() => void vi.unstubAllGlobals())

const episode = (step: number) => ({ step, clip: { hash: `clip-${step}` } }) as Episode
const summary = (step: number) =>
  ({ name: 'hop', latest_episode: step === 0 ? null : episode(step) }) as ExperimentDetail

/** Follow a run whose latest episode is at a step; `missing` are steps whose clips are deleted. */
async function follow(step: number, missing: number[] = []) {
  const clips = {
    clip: (clip: { hash: string }) =>
      missing.some((each) => clip.hash === `clip-${each}`)
        ? Promise.reject(new Error('deleted'))
        : Promise.resolve({ kind: 'poses', clip } as LoadedClip),
  }
  const run = new WatchedRun('hop', clips, () => Promise.resolve(summary(step)))
  run.feed.start()
  await settle()
  return { run }
}

describe('a watched run', () => {
  it('shows the latest episode at once', async () => {
    const { run } = await follow(1)
    expect(run.shown?.episode.step).toBe(1)
    expect(run.newer).toBeNull()
  })

  it('shows the first episode when it has ended', async () => {
    const { run } = await follow(0)
    expect(run.shown).toBeNull()
    sendSummary(summary(1))
    await settle()
    expect(run.shown?.episode.step).toBe(1)
  })

  it('keeps the episode on screen until the newest is wanted, and skips those between', async () => {
    const { run } = await follow(1)
    for (const step of [2, 3]) {
      sendSummary(summary(step))
      await settle()
      expect(run.shown?.episode.step).toBe(1)
    }
    expect(run.newer?.episode.step).toBe(3)
    run.showNewest()
    expect(run.shown?.episode.step).toBe(3)
    expect(run.newer).toBeNull()
  })

  it('does not offer the episode on screen again after an event that comes late', async () => {
    const { run } = await follow(1)
    for (const step of [2, 1]) {
      sendSummary(summary(step))
      await settle()
    }
    expect(run.newer).toBeNull()
    sendSummary(summary(2))
    await settle()
    expect(run.newer?.episode.step).toBe(2)
  })

  it('does not replace an episode by one whose clip is deleted', async () => {
    const { run } = await follow(1, [2])
    sendSummary(summary(2))
    await settle()
    run.showNewest()
    expect(run.shown?.episode.step).toBe(1)
  })
})
