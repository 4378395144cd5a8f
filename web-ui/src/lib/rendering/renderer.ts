/** What draws clips: WebGL where there is one, a plain 2-D picture elsewhere. */

import type { Vector } from './camera'
import type { PosesClip } from '../clips'
import type { Clock } from '../clock'

/** A rectangle of the canvas in CSS pixels, from its top left corner. */
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
  /** The processor draws: what lies over the canvas should be plain too. */
  readonly isPlain: boolean
  /** Other clips, one per pane. */
  show(clips: readonly (PosesClip | null)[]): void
  /** Where they are drawn, and how large the canvas is. */
  layOut(width: number, height: number, panes: readonly Pane[]): void
  paint(palette: Palette): void
  /** Draws the clips at the clock's time if that differs from what is on the canvas. */
  draw(clock: Clock): boolean
  /** Marks what is on the canvas as old. */
  invalidate(): void
  /** Where a point of the world lies in a pane: CSS pixels of the canvas. */
  locate(pane: number, point: Vector): [x: number, y: number] | null
  dispose(): void
}

export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element)
  const read = (name: string) => style.getPropertyValue(name).trim()
  return {
    sky: read('--scene-sky'),
    ground: read('--scene-ground'),
    groundLine: read('--scene-ground-line'),
    shadow: read('--scene-shadow'),
  }
}

/** A length in metres of 1, 2 or 5 times a power of ten: the side of a square of the ground. */
export function niceLength(length: number): number {
  const power = 10 ** Math.floor(Math.log10(length))
  const share = length / power
  return power * (share < 2 ? 1 : share < 5 ? 2 : 5)
}

/** Numbers that were packed as base64 of little-endian bytes. */
export function bytesOf(base64: string): DataView {
  const text = atob(base64)
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0))
  return new DataView(bytes.buffer)
}

export function floatsOf(base64: string): Float32Array {
  const view = bytesOf(base64)
  return Float32Array.from({ length: view.byteLength >> 2 }, (_, i) => view.getFloat32(4 * i, true))
}

export function indicesOf(base64: string): Uint32Array {
  const view = bytesOf(base64)
  return Uint32Array.from({ length: view.byteLength >> 2 }, (_, i) => view.getUint32(4 * i, true))
}
