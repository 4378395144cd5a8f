/** A canvas with its clip renderer; it recovers from a lost WebGL context. */

import type { Orbit } from './camera'
import { CanvasRenderer } from './canvas-renderer'
import type { ClipRenderer } from './renderer'

const RESTORE_TIMEOUT_MS = 3000

export class ClipSurface {
  /** Counts canvases: one that lost its WebGL context cannot be reused for 2-D drawing. */
  number = $state(0)
  isContextLost = $state(false)
  /** Whether WebGL runs on the CPU. */
  isSoftware = $state(false)
  renderer: ClipRenderer | null = null
  #isWebGlAllowed = new URLSearchParams(location.search).get('view') !== 'plain'

  /** @param onready is called when a renderer was created, or has to draw again. */
  constructor(
    private readonly orbit: Orbit,
    private readonly onready: (renderer: ClipRenderer) => void,
  ) {}

  /** Create the renderer of a canvas; return a function that disposes of it. */
  attach = (canvas: HTMLCanvasElement): (() => void) => {
    const detached = new AbortController()
    void loadRenderer(canvas, this.orbit, this.#isWebGlAllowed).then((created) => {
      // The page may have closed the player while the module was loading.
      if (detached.signal.aborted) return created.dispose()
      this.renderer = created
      this.isSoftware = created.isSoftware
      this.onready(created)
    })
    this.#watchContextLoss(canvas, detached.signal)
    return () => {
      detached.abort()
      this.renderer?.dispose()
      this.renderer = null
    }
  }

  #watchContextLoss(canvas: HTMLCanvasElement, signal: AbortSignal): void {
    let timer: ReturnType<typeof setTimeout> | undefined
    const handleLoss = (event: Event) => {
      // Without this the browser never restores the context.
      event.preventDefault()
      this.isContextLost = true
      timer = setTimeout(() => this.#fallBack(), RESTORE_TIMEOUT_MS)
    }
    const handleRestoration = () => {
      clearTimeout(timer)
      this.isContextLost = false
      if (this.renderer !== null) this.onready(this.renderer)
    }
    canvas.addEventListener('webglcontextlost', handleLoss, { signal })
    canvas.addEventListener('webglcontextrestored', handleRestoration, { signal })
    signal.addEventListener('abort', () => clearTimeout(timer))
  }

  /** Replace the canvas by one that is drawn without WebGL. */
  #fallBack(): void {
    this.isContextLost = false
    this.#isWebGlAllowed = false
    this.number += 1
  }
}

/** Load three.js and create its renderer; fall back to the 2-D canvas. */
async function loadRenderer(
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
  return new CanvasRenderer(canvas, orbit)
}
