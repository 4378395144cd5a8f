import { describe, expect, it, vi } from 'vitest'

import { ServerUnreachable } from '../src/lib/api'
import type { Episode, ExperimentDetail } from '../src/lib/api-types'
import type { LoadedClip } from '../src/lib/clips'
import type { EventHandlers } from '../src/lib/events'
import { WatchedRun } from '../src/lib/watched-run.svelte'

const episode = (step: number) => ({ step, clip: { hash: `clip-${step}` } }) as Episode
const summary = (step: number) =>
  ({ name: 'hop', latest_episode: step === 0 ? null : episode(step) }) as ExperimentDetail

/** Follow a run whose latest episode is at a step; `missing` are steps whose clips are deleted. */
async function follow(
  step: number,
  missing: number[] = [],
  getExperiment = () => Promise.resolve(summary(step)),
) {
  const events: EventHandlers = {}
  const clips = {
    clip: (clip: { hash: string }) =>
      missing.some((each) => clip.hash === `clip-${each}`)
        ? Promise.reject(new Error('deleted'))
        : Promise.resolve({ kind: 'poses', clip } as LoadedClip),
  }
  const run = new WatchedRun('hop', clips, {
    getExperiment,
    listen: (_, handlers) => {
      Object.assign(events, handlers)
      return () => undefined
    },
  })
  const stop = run.feed.follow()
  await settle()
  return { run, events, stop }
}

const settle = () => new Promise((done) => setImmediate(done))

describe('a watched run', () => {
  it('shows the latest episode at once', async () => {
    const { run } = await follow(1)
    expect(run.shown?.episode.step).toBe(1)
    expect(run.newer).toBeNull()
  })

  it('shows the first episode when it has ended', async () => {
    const { run, events } = await follow(0)
    expect(run.shown).toBeNull()
    events.experiment?.(summary(1))
    await settle()
    expect(run.shown?.episode.step).toBe(1)
  })

  it('keeps the episode on screen until the newest is wanted, and skips those between', async () => {
    const { run, events } = await follow(1)
    for (const step of [2, 3]) {
      events.experiment?.(summary(step))
      await settle()
      expect(run.shown?.episode.step).toBe(1)
    }
    expect(run.newer?.episode.step).toBe(3)
    run.showNewest()
    expect(run.shown?.episode.step).toBe(3)
    expect(run.newer).toBeNull()
  })

  it('does not offer the episode on screen again after an event that comes late', async () => {
    const { run, events } = await follow(1)
    for (const step of [2, 1]) {
      events.experiment?.(summary(step))
      await settle()
    }
    expect(run.newer).toBeNull()
    events.experiment?.(summary(2))
    await settle()
    expect(run.newer?.episode.step).toBe(2)
  })

  it('is read again after a failure', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const getExperiment = vi.fn(() => Promise.resolve(summary(1)))
    const fail = () => getExperiment.mockRejectedValueOnce(new ServerUnreachable('restarting'))
    fail()
    const { run, stop } = await follow(1, [], getExperiment)
    expect([run.feed.failure, run.summary]).toEqual([new ServerUnreachable('restarting'), null])
    await vi.advanceTimersByTimeAsync(3_000)
    expect([run.feed.failure, run.shown?.episode.step]).toEqual([null, 1])
    fail()
    await run.feed.read()
    stop()
    expect(vi.getTimerCount()).toBe(0)
    vi.useRealTimers()
  })

  it('is not read again if a read fails after it was last watched', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { run, stop } = await follow(1, [], () => Promise.reject(new ServerUnreachable('restarting')))
    const reading = run.feed.read()
    stop()
    await reading
    expect(vi.getTimerCount()).toBe(0)
    vi.useRealTimers()
  })

  it('does not replace an episode by one whose clip is deleted', async () => {
    const { run, events } = await follow(1, [2])
    events.experiment?.(summary(2))
    await settle()
    run.showNewest()
    expect(run.shown?.episode.step).toBe(1)
  })
})
