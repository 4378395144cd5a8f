/** The playback clock that both clips of a comparison share. */

export const SPEEDS = [0.25, 0.5, 1, 2, 4] as const

/** How long the last frame is held before the clips repeat. */
export const HOLD_S = 0.5

/** The timing of a clip. */
export interface Timed {
  num_frames: number
  fps: number
  /** Duration at speed 1. */
  seconds: number
  /** Less than 1 for very short clips, which play in slow motion. */
  speed: number
}

/**
 * Return a clip's position in frames, fractions included. A shorter clip stays on its last frame
 * until the longer one has ended.
 */
export function positionAt(clip: Timed, time_s: number): number {
  return Math.min(Math.max(time_s * clip.fps, 0), clip.num_frames - 1)
}

/** Return the index of the frame to show. */
export function frameAt(clip: Timed, time_s: number): number {
  // Rounding: three frames at 30 Hz take 0.1 s, but 0.1 * 30 is slightly less than 3.
  return Math.floor(positionAt(clip, time_s) + 1e-6)
}

/** Lowest rate of a video; Chromium throws an error if a lower one is set. */
const SLOWEST_VIDEO = 1 / 16

type Video = Pick<
  HTMLVideoElement,
  'currentTime' | 'paused' | 'playbackRate' | 'seeking' | 'play' | 'pause'
>

/**
 * Let a video play by itself, and seek when it drifts from the clock. One that is slower than
 * browsers play it shows each frame by a seek.
 */
export function syncVideo(video: Video, clip: Timed, clock: Clock): void {
  const { fps, num_frames } = clip
  const { rate } = clock
  const position = positionAt(clip, clock.time_s)
  const isRunning = clock.isPlaying && position < num_frames - 1 && rate >= SLOWEST_VIDEO
  // While paused, aim at the middle of the frame: a seek to its edge may show the one before.
  const wanted_s = (position + (isRunning ? 0 : 0.5)) / fps
  const slack_s = 1.5 / fps
  if (isRunning) video.playbackRate = rate
  if (isRunning && video.paused) void video.play().catch(() => undefined)
  if (!isRunning && !video.paused) video.pause()
  const maxDrift_s = isRunning ? Math.max(slack_s, 0.06 * rate) : slack_s / 3
  if (!video.seeking && Math.abs(video.currentTime - wanted_s) > maxDrift_s) {
    video.currentTime = wanted_s
  }
}

export class Clock {
  time_s = 0
  speed = 1
  isPlaying: boolean
  /** Number of repetitions since the clips were loaded. */
  numReplays = 0
  duration_s = 0
  #slowdown = 1
  #fps = 30

  constructor(isPlaying = true) {
    this.isPlaying = isPlaying
  }

  /** Start other clips; keep the speed and the pause. */
  load(clips: readonly Timed[]): void {
    this.duration_s = Math.max(0, ...clips.map((clip) => clip.seconds))
    // One factor for all clips: which of them ends first must stay visible.
    this.#slowdown = Math.max(0, ...clips.map((clip) => clip.speed))
    this.#fps = Math.max(1, ...clips.map((clip) => clip.fps))
    this.time_s = 0
    this.numReplays = 0
  }

  /** Seconds of the clips per second of real time: the chosen speed, less for very short clips. */
  get rate(): number {
    return this.speed * this.#slowdown
  }

  /** Advance by real time. */
  advance(elapsed_s: number): void {
    if (!this.isPlaying || this.duration_s === 0) return
    const loop_s = this.duration_s + HOLD_S * this.rate
    const time_s = this.time_s + elapsed_s * this.rate
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

  /** Pause at the next or previous frame of the clip with the higher frame rate. */
  step(direction: 1 | -1): void {
    this.isPlaying = false
    const numFrames = Math.max(1, Math.round(this.duration_s * this.#fps))
    const frame = Math.min(Math.floor(this.time_s * this.#fps + 1e-6), numFrames - 1)
    this.time_s = ((frame + direction + numFrames) % numFrames) / this.#fps
  }
}
