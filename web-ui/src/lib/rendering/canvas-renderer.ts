/** Clip renderer without WebGL: bodies as strokes on a 2-D canvas. Light enough for lists. */

import type { PosesClip } from '../clips'
import { positionAt, type Clock } from '../clock'
import { poseAt } from '../poses'
import type { Geom, Scene } from '../api-types'
import { clamp, frameClips, targetAt, viewOf, type CameraView, type Orbit, type Vector } from './camera'
import { convexHull, cornersOf, endsOf, thicknessOf } from './outlines'
import { projectionOf, rotateBy, transform, type Projected, type Projection } from './projection'
import { niceLength, type ClipRenderer, type Palette, type Pane } from './renderer'

const NUM_GROUND_SQUARES = 8
/** Brightness of a body's edge, relative to its colour. */
const EDGE = 0.72

/** A geom at its pose in one frame. */
interface PlacedGeom {
  geom: Geom
  pose: ArrayLike<number>
  depth: number
}

export class CanvasRenderer implements ClipRenderer {
  readonly kind = 'canvas'
  readonly isSoftware = false
  #context: CanvasRenderingContext2D
  #clips: readonly (PosesClip | null)[] = []
  #panes: readonly Pane[] = []
  #framing = frameClips([], 1)
  #frameKey = ''
  #palette: Palette | null = null
  #corners = new Map<Geom, Vector[]>()

  constructor(
    readonly canvas: HTMLCanvasElement,
    readonly orbit: Orbit,
  ) {
    this.#context = canvas.getContext('2d')!
  }

  show(clips: readonly (PosesClip | null)[]): void {
    this.#clips = clips
    this.#frame()
    this.#corners.clear()
    this.invalidate()
  }

  setLayout(width: number, height: number, panes: readonly Pane[]): void {
    const ratio = Math.min(devicePixelRatio, 2)
    this.canvas.width = Math.round(width * ratio)
    this.canvas.height = Math.round(height * ratio)
    this.#context.setTransform(ratio, 0, 0, ratio, 0, 0)
    this.#panes = panes
    this.#frame()
    this.invalidate()
  }

  #frame(): void {
    const pane = this.#panes[0]
    this.#framing = frameClips(this.#clips, pane === undefined ? 1 : pane.width / pane.height)
  }

  paint(palette: Palette): void {
    this.#palette = palette
    this.invalidate()
  }

  invalidate(): void {
    this.#frameKey = ''
  }

  draw(clock: Clock): boolean {
    const { azimuth_deg, elevation_deg, zoom } = this.orbit
    const positions = this.#clips.map((clip) => clip && positionAt(clip.clip, clock.time_s))
    const frameKey = [...positions, azimuth_deg, elevation_deg, zoom].join()
    if (frameKey === this.#frameKey) return false
    this.#frameKey = frameKey
    for (const [i, pane] of this.#panes.entries()) {
      this.#drawPane(this.#clips[i] ?? null, pane, positions[i] ?? 0)
    }
    return true
  }

  #drawPane(clip: PosesClip | null, pane: Pane, position: number): void {
    const context = this.#context
    context.save()
    context.beginPath()
    context.rect(pane.x, pane.y, pane.width, pane.height)
    context.clip()
    context.fillStyle = this.#palette?.sky ?? 'Canvas'
    context.fillRect(pane.x, pane.y, pane.width, pane.height)
    if (clip !== null) this.#drawClip(clip, pane, position)
    context.restore()
  }

  #drawClip(clip: PosesClip, pane: Pane, position: number): void {
    const view = this.#viewOf(clip, position)
    const project = projectionOf(view, pane)
    const ground = clip.scene.geoms.find(({ type, body }) => type === 'plane' && body === -1)
    if (ground !== undefined) this.#drawGround(project, view, ground.pos[2]!)
    const placed = clip.scene.geoms
      .filter(({ type }) => type !== 'plane' && type !== 'hfield')
      .map((geom) => placeGeom(geom, clip, position, project))
    // Painter's algorithm: far geoms first.
    placed.sort((one, other) => other.depth - one.depth)
    if (ground !== undefined) for (const one of placed) this.#drawShadow(one, project, ground.pos[2]!)
    for (const one of placed) this.#drawGeom(one, clip.scene, project)
  }

  #viewOf(clip: PosesClip, position: number): CameraView {
    const target = targetAt(clip.scene, clip.poses, position, this.#framing.height)
    return viewOf(clip.scene.camera, this.orbit, target, this.#framing.distance)
  }

  #drawGround(project: Projection, view: CameraView, z: number): void {
    const cell = niceLength(view.distance / 4)
    const [x0, y0] = [0, 1].map((i) => Math.round(view.target[i]! / cell) * cell) as [number, number]
    this.#context.strokeStyle = this.#palette?.groundLine ?? 'GrayText'
    this.#context.lineWidth = 1
    const reach = NUM_GROUND_SQUARES * cell
    for (let i = -NUM_GROUND_SQUARES; i <= NUM_GROUND_SQUARES; i++) {
      const at = i * cell
      this.#drawLine(project([x0 + at, y0 - reach, z]), project([x0 + at, y0 + reach, z]))
      this.#drawLine(project([x0 - reach, y0 + at, z]), project([x0 + reach, y0 + at, z]))
    }
  }

  #drawShadow({ geom, pose }: PlacedGeom, project: Projection, z: number): void {
    const centre = project([pose[0]!, pose[1]!, z])
    if (centre.depth <= 0) return
    const [a, b] = endsOf(geom, pose)
    this.#context.strokeStyle = this.#palette?.shadow ?? 'rgb(0 0 0 / 15%)'
    this.#context.lineCap = 'round'
    this.#context.lineWidth = Math.max(2, 1.6 * thicknessOf(geom) * centre.scale * 0.6)
    this.#drawLine(project([a[0], a[1], z]), project([b[0], b[1], z]))
  }

  #drawGeom({ geom, pose }: PlacedGeom, scene: Scene, project: Projection): void {
    this.#context.globalAlpha = geom.rgba[3]!
    if (geom.type === 'box' || geom.type === 'mesh') this.#drawHull(geom, scene, pose, project)
    else this.#drawLimb(geom, pose, project)
    this.#context.globalAlpha = 1
  }

  #drawLimb(geom: Geom, pose: ArrayLike<number>, project: Projection): void {
    const [from, to] = endsOf(geom, pose).map(project) as [Projected, Projected]
    if (from.depth <= 0 || to.depth <= 0) return
    const width = 2 * thicknessOf(geom) * ((from.scale + to.scale) / 2)
    const context = this.#context
    context.lineCap = geom.type === 'cylinder' ? 'butt' : 'round'
    context.strokeStyle = cssColour(geom.rgba, EDGE)
    context.lineWidth = Math.max(width, 1.5)
    this.#drawLine(from, to)
    context.strokeStyle = cssColour(geom.rgba, 1)
    context.lineWidth = Math.max(width * 0.72, 1)
    this.#drawLine(from, to)
  }

  #drawHull(geom: Geom, scene: Scene, pose: ArrayLike<number>, project: Projection): void {
    let corners = this.#corners.get(geom)
    if (corners === undefined) {
      corners = cornersOf(geom, scene)
      this.#corners.set(geom, corners)
    }
    const points = corners.map((corner) => project(transform(pose, corner)))
    if (points.some(({ depth }) => depth <= 0)) return
    const context = this.#context
    context.beginPath()
    for (const { x, y } of convexHull(points)) context.lineTo(x, y)
    context.closePath()
    context.fillStyle = cssColour(geom.rgba, 1)
    context.strokeStyle = cssColour(geom.rgba, EDGE)
    context.lineWidth = 1.5
    context.fill()
    context.stroke()
  }

  #drawLine(from: Projected, to: Projected): void {
    if (from.depth <= 0 || to.depth <= 0) return
    this.#context.beginPath()
    this.#context.moveTo(from.x, from.y)
    // Browsers skip a line of length zero, but draw the round cap of a very short one.
    this.#context.lineTo(to.x + 0.01, to.y)
    this.#context.stroke()
  }

  locate(pane: number, point: Vector): [number, number] | null {
    const clip = this.#clips[pane]
    const box = this.#panes[pane]
    if (!clip || box === undefined) return null
    const position = Number(this.#frameKey.split(',')[pane] ?? 0) || 0
    const { x, y } = projectionOf(this.#viewOf(clip, position), box)(point)
    return [x, y]
  }

  dispose(): void {
    this.#clips = []
  }
}

const bodyPose = new Float32Array(7)

function placeGeom(geom: Geom, clip: PosesClip, position: number, project: Projection): PlacedGeom {
  bodyPose.set([0, 0, 0, 1, 0, 0, 0])
  if (geom.body >= 0) poseAt(clip.poses, geom.body, position, bodyPose)
  const centre = transform(bodyPose, [geom.pos[0]!, geom.pos[1]!, geom.pos[2]!])
  const pose = [...centre, ...rotateBy(bodyPose, geom.quat)]
  return { geom, pose, depth: project(centre).depth }
}

function cssColour(rgba: readonly number[], brightness: number): string {
  const [red, green, blue] = rgba.map((value) => Math.round(clamp(255 * brightness * value, 0, 255)))
  return `rgb(${red} ${green} ${blue})`
}
