/** Clip renderer on WebGL: one three.js renderer draws each clip into a scissored viewport. */

import {
  BasicShadowMap,
  PCFShadowMap,
  PerspectiveCamera,
  Vector3,
  WebGLRenderer,
} from 'three'

import type { PosesClip } from '../clips'
import { positionAt, type Clock } from '../clock'
import { poseAt } from '../poses'
import { FIELD_OF_VIEW_DEG, frameClips, targetAt, viewOf, type Orbit, type Vector } from './camera'
import type { ClipRenderer, Palette, Pane } from './renderer'
import { SceneBuilder, type ClipScene } from './scene-builder'

/** Device pixels per CSS pixel, in the order in which slow hardware falls back. */
const PIXEL_RATIOS = [2, 1.5, 1, 0.75, 0.6]
/** A frame that takes longer (below 25 Hz) counts as slow. */
const SLOW_FRAME_MS = 40
/** A longer gap between frames is a pause in playback, not a slow frame. */
const PAUSE_MS = 250
const MAX_SLOW_FRAMES = 20
/** Segments around a round body, with and without graphics hardware. */
const SMOOTH_SEGMENTS = 20
const COARSE_SEGMENTS = 12
/** Far clipping plane, in multiples of the camera's distance. */
const FAR_PLANE = 60

export class ThreeRenderer implements ClipRenderer {
  readonly kind = 'webgl'
  readonly isSoftware: boolean
  #renderer: WebGLRenderer
  #camera = new PerspectiveCamera(FIELD_OF_VIEW_DEG, 1, 0.01, 1000)
  #builder: SceneBuilder
  #scenes: (ClipScene | null)[] = []
  #panes: readonly Pane[] = []
  #framing = frameClips([], 1)
  #size: [number, number] = [1, 1]
  #layoutKey = ''
  #frameKey = ''
  #pixelRatio: number
  #numSlowFrames = 0
  #lastFrame_ms = 0
  #palette: Palette | null = null
  #pose = new Float32Array(7)

  /** @throws Error if WebGL is not available, or the driver refuses a context. */
  constructor(
    canvas: HTMLCanvasElement,
    readonly orbit: Orbit,
  ) {
    this.isSoftware = usesSoftwareRendering()
    this.#renderer = new WebGLRenderer({ canvas, antialias: !this.isSoftware, alpha: true })
    this.#builder = new SceneBuilder(this.isSoftware ? COARSE_SEGMENTS : SMOOTH_SEGMENTS)
    this.#pixelRatio = Math.min(devicePixelRatio, this.isSoftware ? 1 : PIXEL_RATIOS[0]!)
    this.#camera.up.set(0, 0, 1)
    this.#renderer.shadowMap.enabled = true
    // In software, soft shadow edges cost as much as the rest of the frame.
    this.#renderer.shadowMap.type = this.isSoftware ? BasicShadowMap : PCFShadowMap
    this.#renderer.setScissorTest(true)
  }

  show(clips: readonly (PosesClip | null)[]): void {
    this.#scenes = clips.map((clip, i) => this.#sceneFor(clip, this.#scenes[i] ?? null))
    this.#frame()
    this.invalidate()
  }

  #frame(): void {
    const pane = this.#panes[0]
    const clips = this.#scenes.map((scene) => scene && scene.clip)
    this.#framing = frameClips(clips, pane === undefined ? 1 : pane.width / pane.height)
  }

  /** Return a scene for the clip; clips of one environment share their meshes and differ in poses. */
  #sceneFor(clip: PosesClip | null, previous: ClipScene | null): ClipScene | null {
    if (clip === null) return null
    if (previous?.clip.clip.scene_url === clip.clip.scene_url) return previous.withClip(clip)
    const scene = this.#builder.build(clip)
    if (this.#palette !== null) scene.paint(this.#palette)
    return scene
  }

  setLayout(width: number, height: number, panes: readonly Pane[]): void {
    const layoutKey = JSON.stringify([width, height, panes, this.#pixelRatio])
    if (layoutKey === this.#layoutKey) return
    this.#layoutKey = layoutKey
    this.#size = [width, height]
    this.#panes = panes
    this.#frame()
    this.#renderer.setPixelRatio(this.#pixelRatio)
    this.#renderer.setSize(width, height, false)
    this.invalidate()
  }

  paint(palette: Palette): void {
    this.#palette = palette
    for (const scene of this.#scenes) scene?.paint(palette)
    this.invalidate()
  }

  invalidate(): void {
    this.#frameKey = ''
  }

  draw(clock: Clock): boolean {
    const { azimuth_deg, elevation_deg, zoom } = this.orbit
    const positions = this.#scenes.map((scene) => scene && positionAt(scene.clip.clip, clock.time_s))
    // The frame depends on these values only, so an equal key means an equal frame.
    const frameKey = [...positions, azimuth_deg, elevation_deg, zoom].join()
    if (frameKey === this.#frameKey || this.#renderer.getContext().isContextLost()) return false
    this.#frameKey = frameKey
    for (const [i, scene] of this.#scenes.entries()) {
      const pane = this.#panes[i]
      if (pane !== undefined) this.#drawPane(scene, pane, positions[i] ?? 0)
    }
    this.#adaptResolution(performance.now())
    return true
  }

  #drawPane(scene: ClipScene | null, pane: Pane, position: number): void {
    const bottom = this.#size[1] - pane.y - pane.height
    this.#renderer.setViewport(pane.x, bottom, pane.width, pane.height)
    this.#renderer.setScissor(pane.x, bottom, pane.width, pane.height)
    if (scene === null) return this.#renderer.clear()
    this.#applyPose(scene, position)
    this.#aimCamera(scene, position, pane)
    this.#renderer.render(scene.root, this.#camera)
  }

  #applyPose(scene: ClipScene, position: number): void {
    for (const [body, group] of scene.bodies.entries()) {
      poseAt(scene.clip.poses, body, position, this.#pose)
      const [x, y, z, w, i, j, k] = this.#pose
      group.position.set(x!, y!, z!)
      group.quaternion.set(i!, j!, k!, w!)
    }
  }

  #aimCamera(scene: ClipScene, position: number, pane: Pane): void {
    const { scene: file, poses } = scene.clip
    const target = targetAt(file, poses, position, this.#framing.height)
    const view = viewOf(file.camera, this.orbit, target, this.#framing.distance)
    this.#camera.aspect = pane.width / pane.height
    this.#camera.near = view.distance / 100
    this.#camera.far = view.distance * FAR_PLANE
    this.#camera.position.set(...view.eye)
    this.#camera.lookAt(...view.target)
    this.#camera.updateProjectionMatrix()
    scene.follow(view)
  }

  locate(pane: number, point: Vector): [number, number] | null {
    const scene = this.#scenes[pane]
    const box = this.#panes[pane]
    if (!scene || box === undefined) return null
    const lastPosition = Number(this.#frameKey.split(',')[pane] ?? 0) || 0
    this.#aimCamera(scene, lastPosition, box)
    this.#camera.updateMatrixWorld()
    const projected = new Vector3(...point).project(this.#camera)
    return [
      box.x + ((projected.x + 1) / 2) * box.width,
      box.y + ((1 - projected.y) / 2) * box.height,
    ]
  }

  /** Lower the resolution when most of the recent frames were slow. */
  #adaptResolution(now_ms: number): void {
    // The driver draws asynchronously, so only the interval between frames shows their cost.
    const frame_ms = now_ms - this.#lastFrame_ms
    this.#lastFrame_ms = now_ms
    if (frame_ms > PAUSE_MS) return
    this.#numSlowFrames = Math.max(0, this.#numSlowFrames + (frame_ms > SLOW_FRAME_MS ? 1 : -2))
    const lower = PIXEL_RATIOS.find((ratio) => ratio < this.#pixelRatio)
    if (this.#numSlowFrames < MAX_SLOW_FRAMES || lower === undefined) return
    this.#numSlowFrames = 0
    this.#pixelRatio = lower
    this.setLayout(...this.#size, this.#panes)
  }

  dispose(): void {
    this.#builder.dispose()
    this.#renderer.dispose()
    // Browsers limit the number of contexts and warn about those that wait for garbage collection.
    this.#renderer.forceContextLoss()
  }
}

/** Return whether WebGL runs on the CPU, where smooth edges are too slow. */
function usesSoftwareRendering(): boolean {
  const probe = document.createElement('canvas').getContext('webgl2')
  if (probe === null) return false
  const details = probe.getExtension('WEBGL_debug_renderer_info')
  const name = details === null ? '' : String(probe.getParameter(details.UNMASKED_RENDERER_WEBGL))
  probe.getExtension('WEBGL_lose_context')?.loseContext()
  return /swiftshader|llvmpipe|software|basic render/i.test(name)
}
