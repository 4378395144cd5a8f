import { describe, expect, it } from 'vitest'
import { Clock, HOLD_S, frameAt, syncVideo, type Timed } from '../src/lib/clock'

const LONG = { num_frames: 30, fps: 20, seconds: 1.5, speed: 1 }
const SHORT = { num_frames: 10, fps: 20, seconds: 0.5, speed: 0.5 }

function loaded(): Clock {
  const clock = new Clock()
  clock.load([LONG, SHORT])
  return clock
}

describe('Clock', () => {
  it('repeats after the longer clip and a hold', () => {
    const clock = loaded()
    expect(clock.duration_s).toBe(1.5)
    clock.advance(1.5 + HOLD_S + 0.25)
    expect(clock.time_s).toBeCloseTo(0.25)
    expect(clock.numReplays).toBe(1)
  })

  it('holds the last frame of the shorter clip until the longer one ends', () => {
    expect(frameAt(SHORT, 1.2)).toBe(9)
    expect(frameAt(LONG, 1.2)).toBe(24)
  })

  it('advances at its speed and stops while paused', () => {
    const clock = loaded()
    clock.speed = 0.25
    clock.advance(1)
    expect(clock.time_s).toBe(0.25)
    clock.isPlaying = false
    clock.advance(1)
    expect(clock.time_s).toBe(0.25)
  })

  it('plays very short clips in slow motion, all by one factor', () => {
    const clock = new Clock()
    clock.load([{ num_frames: 10, fps: 50, seconds: 0.2, speed: 0.2 }, { num_frames: 5, fps: 50, seconds: 0.1, speed: 0.1 }])
    expect(clock.rate).toBeCloseTo(0.2)
    clock.advance(0.5)
    expect(clock.time_s).toBeCloseTo(0.1)
    clock.speed = 2
    expect(clock.rate).toBeCloseTo(0.4)
    clock.load([LONG, SHORT])
    expect(clock.rate).toBe(2)
  })

  it('steps frame by frame and wraps around', () => {
    const clock = loaded()
    clock.step(1)
    expect(frameAt(LONG, clock.time_s)).toBe(1)
    clock.step(-1)
    clock.step(-1)
    expect(frameAt(LONG, clock.time_s)).toBe(29)
    expect(clock.isPlaying).toBe(false)
  })

  it.each(Array.from({ length: 30 }, (_, i) => i))('returns frame %i at its timestamp', (frame) => {
    expect(frameAt(LONG, frame / 20)).toBe(frame)
  })
})

describe('syncVideo', () => {
  /** Return a video that refuses low rates as Chromium does. */
  function createVideo() {
    let playbackRate = 1
    return {
      currentTime: 0,
      paused: true,
      seeking: false,
      get playbackRate() {
        return playbackRate
      },
      set playbackRate(rate: number) {
        if (rate < 1 / 16) throw new DOMException('not in the supported range', 'NotSupportedError')
        playbackRate = rate
      },
      play() {
        this.paused = false
        return Promise.resolve()
      },
      pause() {
        this.paused = true
      },
    }
  }

  function load(clip: Timed, speed: number): Clock {
    const clock = new Clock()
    clock.load([clip])
    clock.speed = speed
    return clock
  }

  it('plays a video at the rate of the clock', () => {
    const video = createVideo()
    syncVideo(video, LONG, load(LONG, 0.25))
    expect([video.paused, video.playbackRate]).toEqual([false, 0.25])
  })

  it('shows each frame of a video that is too slow to be played', () => {
    const clip = { num_frames: 10, fps: 50, seconds: 0.2, speed: 0.2 }
    const video = createVideo()
    const clock = load(clip, 0.25)
    const shown = new Set<number>()
    for (let i = 0; i < 78; i++) {
      clock.advance(0.05)
      syncVideo(video, clip, clock)
      shown.add(Math.floor(video.currentTime * clip.fps))
    }
    expect([...shown]).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    expect(video.paused).toBe(true)
  })
})
