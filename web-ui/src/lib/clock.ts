/** One clock for both clips of a comparison. */

export const SPEEDS = [0.25, 0.5, 1, 2, 4] as const

/** How long the last frame stays before the clips begin again. */
export const HOLD_S = 0.5

/** What the clock must know of a clip. */
export interface Timed {
  num_frames: number
  fps: number
}

/** How long the clips take together: the longer one's frames. */
export function durationOf(clips: readonly Timed[]): number {
  return Math.max(0, ...clips.map((clip) => clip.num_frames / clip.fps))
}

/**
 * Where a clip is at time t, in frames: its floor is the frame. A shorter clip rests on its last
 * frame until the longer one has ended.
 */
export function positionAt(clip: Timed, time_s: number): number {
  return Math.min(Math.max(time_s * clip.fps, 0), clip.num_frames - 1)
}

/** Which frame of a clip is shown at time t. */
export function frameAt(clip: Timed, time_s: number): number {
  // Note: 3 frames at 30 a second are 0.1 s, and 0.1 * 30 is a little less than 3.
  return Math.floor(positionAt(clip, time_s) + 1e-6)
}

export class Clock {
  time_s = 0
  speed = 1
  isPlaying: boolean
  /** How often the clips have begun again since they were loaded. */
  numReplays = 0
  duration_s = 0
  #fps = 30

  constructor(isPlaying = true) {
    this.isPlaying = isPlaying
  }

  /** Begins with other clips; speed and pause stay as the person has set them. */
  load(clips: readonly Timed[]): void {
    this.duration_s = durationOf(clips)
    this.#fps = Math.max(1, ...clips.map((clip) => clip.fps))
    this.time_s = 0
    this.numReplays = 0
  }

  /** Lets time pass. */
  advance(elapsed_s: number): void {
    if (!this.isPlaying || this.duration_s === 0) return
    const loop_s = this.duration_s + HOLD_S * this.speed
    const time_s = this.time_s + elapsed_s * this.speed
    this.numReplays += Math.floor(time_s / loop_s)
    this.time_s = time_s % loop_s
  }

  seek(time_s: number): void {
    this.time_s = Math.min(Math.max(time_s, 0), this.duration_s)
  }

  restart(): void {
    this.time_s = 0
    this.numReplays += 1
  }

  /** Goes to the next or the previous frame of the faster clip, and stops there. */
  step(direction: 1 | -1): void {
    this.isPlaying = false
    const numFrames = Math.max(1, Math.round(this.duration_s * this.#fps))
    const frame = Math.min(Math.floor(this.time_s * this.#fps + 1e-6), numFrames - 1)
    this.time_s = ((frame + direction + numFrames) % numFrames) / this.#fps
  }

  /** The share of the loop that has passed, 0 to 1. */
  get share(): number {
    return this.duration_s === 0 ? 0 : Math.min(this.time_s / this.duration_s, 1)
  }
}
