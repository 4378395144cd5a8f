/** The clock as the page's controls see it, and how the person looks at the clips. */

import { Orbit } from './camera'
import { Clock, SPEEDS, type Timed } from './clock'

const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches

export class Player {
  readonly clock = new Clock(!reducedMotion())
  readonly orbit = new Orbit()
  isPlaying = $state(this.clock.isPlaying)
  speed = $state(this.clock.speed)
  time_s = $state(0)
  duration_s = $state(0)
  /** Set by what draws: called after every change. */
  wake: () => void = () => undefined

  load(clips: readonly Timed[]): void {
    this.clock.load(clips)
    this.#follow()
  }

  /** Lets time pass; the controls follow. */
  advance(elapsed_s: number): void {
    this.clock.advance(elapsed_s)
    this.time_s = Math.min(this.clock.time_s, this.clock.duration_s)
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
    this.time_s = Math.min(this.clock.time_s, this.clock.duration_s)
    this.wake()
  }
}
