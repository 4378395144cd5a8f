/** The clock as the page's controls see it, and how the person looks at the clips. */

import { Orbit } from './rendering/camera'
import { Clock, SPEEDS, type Timed } from './clock'

/** Time between two looks of the controls at a running clock: each costs a whole page's painting. */
const LOOK_EVERY_S = 0.1

const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches

export class Playback {
  readonly clock = new Clock(!reducedMotion())
  readonly orbit = new Orbit()
  isPlaying = $state(this.clock.isPlaying)
  speed = $state(this.clock.speed)
  time_s = $state(0)
  duration_s = $state(0)
  /** Set by what draws: called after every change. */
  wake: () => void = () => undefined
  /** Called when the clips have ended and begin again by themselves. */
  onround: () => void = () => undefined
  #unseen_s = 0

  load(clips: readonly Timed[]): void {
    this.clock.load(clips)
    this.#follow()
  }

  /** Lets time pass; the controls follow, some times a second. */
  advance(elapsed_s: number): void {
    const rounds = this.clock.numReplays
    this.clock.advance(elapsed_s)
    this.#unseen_s += elapsed_s
    if (this.#unseen_s >= LOOK_EVERY_S) this.#look()
    if (this.clock.numReplays > rounds) this.onround()
  }

  toggle(): void {
    this.clock.isPlaying = !this.clock.isPlaying
    this.#follow()
  }

  restart(): void {
    this.clock.restart()
    this.#follow()
  }

  step(direction: 1 | -1): void {
    this.clock.step(direction)
    this.#follow()
  }

  seek(time_s: number): void {
    this.clock.seek(time_s)
    this.#follow()
  }

  setSpeed(index: number): void {
    this.clock.speed = SPEEDS[index] ?? 1
    this.#follow()
  }

  turn(azimuth_deg: number, elevation_deg: number): void {
    this.orbit.turn(azimuth_deg, elevation_deg)
    this.wake()
  }

  magnify(factor: number): void {
    this.orbit.magnify(factor)
    this.wake()
  }

  resetView(): void {
    this.orbit.reset()
    this.wake()
  }

  #follow(): void {
    this.isPlaying = this.clock.isPlaying
    this.speed = this.clock.speed
    this.duration_s = this.clock.duration_s
    this.#look()
    this.wake()
  }

  #look(): void {
    this.#unseen_s = 0
    this.time_s = Math.min(this.clock.time_s, this.clock.duration_s)
  }
}
