/** The interface of clip renderers: WebGL where available, a 2-D canvas elsewhere. */

import type { PosesClip } from '../clips'
import type { Clock } from '../clock'
import type { Vector } from './camera'

/** A rectangle of the canvas in CSS pixels; the origin is the top left corner. */
export interface Pane {
  x: number
  y: number
  width: number
  height: number
}

/** Colours that follow the page's theme. */
export interface Palette {
  sky: string
  ground: string
  groundLine: string
  shadow: string
}

export interface ClipRenderer {
  readonly kind: 'webgl' | 'canvas'
  /** WebGL runs on the CPU: effects over the canvas, such as rounded corners, are too slow. */
  readonly isSoftware: boolean
  /** Show other clips, one per pane. */
  show(clips: readonly (PosesClip | null)[]): void
  /** Set the size of the canvas and the panes. */
  setLayout(width: number, height: number, panes: readonly Pane[]): void
  paint(palette: Palette): void
  /** Draw the clips at the clock's time; return whether the frame differed from the last one. */
  draw(clock: Clock): boolean
  /** Force the next call of `draw` to draw. */
  invalidate(): void
  /** Return where a point of the world appears in a pane, in CSS pixels of the canvas. */
  locate(pane: number, point: Vector): [x: number, y: number] | null
  dispose(): void
}

/** Read the scene's colours where the element is. */
export function paletteOf(element: Element): Palette {
  // The tokens are formulas of the colour scheme; as a colour of an element they are evaluated.
  const probe = document.createElement('span')
  element.append(probe)
  const read = (name: string) => {
    probe.style.color = `var(${name})`
    return getComputedStyle(probe).color
  }
  const palette = {
    sky: read('--scene-sky'),
    ground: read('--scene-ground'),
    groundLine: read('--scene-ground-line'),
    shadow: read('--scene-shadow'),
  }
  probe.remove()
  return palette
}

/** Round a length in metres down to 1, 2 or 5 times a power of ten: the side of a ground square. */
export function niceLength(length: number): number {
  const power = 10 ** Math.floor(Math.log10(length))
  const leading = length / power
  return power * (leading < 2 ? 1 : leading < 5 ? 2 : 5)
}
