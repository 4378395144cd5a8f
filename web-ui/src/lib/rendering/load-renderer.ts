/** Choice of the clip renderer and recovery from a lost WebGL context. */

import type { Orbit } from './camera'
import type { ClipRenderer } from './renderer'

const RESTORE_TIMEOUT_MS = 3000

/** Load three.js and create its renderer; fall back to the 2-D canvas. */
export async function loadRenderer(
  canvas: HTMLCanvasElement,
  orbit: Orbit,
  isWebGlAllowed: boolean,
): Promise<ClipRenderer> {
  if (isWebGlAllowed) {
    try {
      const { ThreeRenderer } = await import('./three-renderer')
      return new ThreeRenderer(canvas, orbit)
    } catch {
      // No WebGL, or its code could not be loaded.
    }
  }
  const { CanvasRenderer } = await import('./canvas-renderer')
  return new CanvasRenderer(canvas, orbit)
}

export interface ContextLossHandlers {
  onlost: () => void
  onrestored: () => void
  /** The driver did not restore the context in time. */
  ontimeout: () => void
}

/** Watch a canvas for the loss of its WebGL context, for example after a driver reset. */
export function watchContextLoss(canvas: HTMLCanvasElement, handlers: ContextLossHandlers): void {
  let timer: ReturnType<typeof setTimeout> | undefined
  canvas.addEventListener('webglcontextlost', (event) => {
    // Without this the browser never restores the context.
    event.preventDefault()
    handlers.onlost()
    timer = setTimeout(handlers.ontimeout, RESTORE_TIMEOUT_MS)
  })
  canvas.addEventListener('webglcontextrestored', () => {
    clearTimeout(timer)
    handlers.onrestored()
  })
}
