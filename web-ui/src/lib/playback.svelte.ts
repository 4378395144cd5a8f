/** Playback state: the clock as reactive state for the controls, and the camera's orbit. */

import { Orbit } from './rendering/camera'
import { Clock, SPEEDS, type Timed } from './clock'
import { actionOf, type Action } from './keys'

/** Update interval of the controls while the clock runs; each update repaints the page. */
const UPDATE_INTERVAL_S = 0.1

const reducedMotion = () => matchMedia('(prefers-reduced-motion: reduce)').matches

export class Playback {
  readonly clock = new Clock(!reducedMotion())
  readonly orbit = new Orbit()
  isPlaying = $state(this.clock.isPlaying)
  speed = $state(this.clock.speed)
  time_s = $state(0)
  duration_s = $state(0)
  /** Set by the clip player: called after every change. */
  onchange: () => void = () => undefined
  /** Called when the clips have ended and repeat. */
  onrepeat: () => void = () => undefined
  #sinceUpdate_s = 0

  load(clips: readonly Timed[]): void {
    this.clock.load(clips)
    this.#update()
  }

  /** Advance the clock; the controls are updated ten times per second. */
  advance(elapsed_s: number): void {
    const numReplays = this.clock.numReplays
    this.clock.advance(elapsed_s)
    this.#sinceUpdate_s += elapsed_s
    if (this.#sinceUpdate_s >= UPDATE_INTERVAL_S) this.#updateTime()
    if (this.clock.numReplays > numReplays) this.onrepeat()
  }

  toggle(): void {
    this.clock.isPlaying = !this.clock.isPlaying
    this.#update()
  }

  restart(): void {
    this.clock.restart()
    this.#update()
  }

  step(direction: 1 | -1): void {
    this.clock.step(direction)
    this.#update()
  }

  seek(time_s: number): void {
    this.clock.seek(time_s)
    this.#update()
  }

  setSpeed(index: number): void {
    this.clock.speed = SPEEDS[index] ?? 1
    this.#update()
  }

  turn(azimuth_deg: number, elevation_deg: number): void {
    this.orbit.turn(azimuth_deg, elevation_deg)
    this.onchange()
  }

  magnify(factor: number): void {
    this.orbit.magnify(factor)
    this.onchange()
  }

  resetView(): void {
    this.orbit.reset()
    this.onchange()
  }

  /** Perform the action of a key, unless a dialog is open: for pages on which keys only play. */
  readonly handleKey = (event: KeyboardEvent): void => {
    if (document.querySelector('dialog[open]') === null) this.handleDialogKey(event)
  }

  /** Handle a key that was pressed in the dialog of the player. */
  readonly handleDialogKey = (event: KeyboardEvent): void => {
    const action = actionOf(event)
    if (action === null || !this.perform(action)) return
    event.preventDefault()
    event.stopPropagation()
  }

  /** Perform a keyboard action; return whether it is one of playback. */
  perform(action: Action): boolean {
    switch (action.kind) {
      case 'pause':
        this.toggle()
        return true
      case 'restart':
        this.restart()
        return true
      case 'step':
        this.step(action.direction)
        return true
      case 'speed':
        this.setSpeed(action.index)
        return true
      case 'orbit':
        this.turn(action.azimuth, action.elevation)
        return true
      case 'resetView':
        this.resetView()
        return true
      default:
        return false
    }
  }

  #update(): void {
    this.isPlaying = this.clock.isPlaying
    this.speed = this.clock.speed
    this.duration_s = this.clock.duration_s
    this.#updateTime()
    this.onchange()
  }

  #updateTime(): void {
    this.#sinceUpdate_s = 0
    this.time_s = Math.min(this.clock.time_s, this.clock.duration_s)
  }
}
