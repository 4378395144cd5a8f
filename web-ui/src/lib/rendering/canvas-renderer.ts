/** Draws clips without WebGL: limbs as strokes, on a plain 2-D canvas. Small enough for lists. */

import {
  clamp,
  commonHeight,
  FIELD_OF_VIEW_DEG,
  rotate,
  targetAt,
  viewOf,
  type Orbit,
  type Vector,
  type View,
} from './camera'
import type { PosesClip } from '../clips'
import { positionAt, type Clock } from '../clock'
import { poseAt } from '../poses'
import type { Geom, SceneFile } from '../types'
import { floatsOf, niceLength, type ClipRenderer, type Palette, type Pane } from './renderer'

const MOST_MESH_POINTS = 120
const GROUND_SQUARES = 8

/** A point on the canvas, how large a metre is there, and how far away it is. */
interface Seen {
  x: number
  y: number
  scale: number
  depth: number
}

type Projection = (point: Vector) => Seen

/** A geom where it is in one frame. */
interface Placed {
  geom: Geom
  pose: ArrayLike<number>
  depth: number
}

export class CanvasRenderer implements ClipRenderer {
  readonly kind = 'canvas'
  readonly isPlain = false
  #context: CanvasRenderingContext2D
  #clips: readonly (PosesClip | null)[] = []
  #panes: readonly Pane[] = []
  #height = 0
  #drawn = ''
  #palette: Palette | null = null
  #meshPoints = new Map<Geom, Vector[]>()

  constructor(
    readonly canvas: HTMLCanvasElement,
    readonly orbit: Orbit,
  ) {
    this.#context = canvas.getContext('2d')!
  }

  show(clips: readonly (PosesClip | null)[]): void {
    const shown = clips.filter((clip) => clip !== null)
    this.#clips = clips
    this.#height =
      shown.length > 0 ? commonHeight(shown[0]!.scene, shown.map(({ poses }) => poses)) : 0
    this.#meshPoints.clear()
    this.invalidate()
  }

  layOut(width: number, height: number, panes: readonly Pane[]): void {
    const ratio = Math.min(devicePixelRatio, 2)
    this.canvas.width = Math.round(width * ratio)
    this.canvas.height = Math.round(height * ratio)
    this.#context.setTransform(ratio, 0, 0, ratio, 0, 0)
    this.#panes = panes
    this.invalidate()
  }

  paint(palette: Palette): void {
    this.#palette = palette
    this.invalidate()
  }

  invalidate(): void {
    this.#drawn = ''
  }

  draw(clock: Clock): boolean {
    const { azimuth_deg, elevation_deg, zoom } = this.orbit
    const positions = this.#clips.map((clip) => clip && positionAt(clip.clip, clock.time_s))
    const wanted = [...positions, azimuth_deg, elevation_deg, zoom].join()
    if (wanted === this.#drawn) return false
    this.#drawn = wanted
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
    const view = this.#viewOf(clip, pane, position)
    const project = projectionOf(view, pane)
    const ground = clip.scene.geoms.find(({ type, body }) => type === 'plane' && body === -1)
    if (ground !== undefined) this.#drawGround(project, view, ground.pos[2]!)
    const placed = clip.scene.geoms
      .filter(({ type }) => type !== 'plane' && type !== 'hfield')
      .map((geom) => place(geom, clip, position, project))
    placed.sort((one, other) => other.depth - one.depth)
    if (ground !== undefined) for (const one of placed) this.#drawShadow(one, project, ground.pos[2]!)
    for (const one of placed) this.#drawGeom(one, clip.scene, project)
  }

  #viewOf(clip: PosesClip, pane: Pane, position: number): View {
    const target = targetAt(clip.scene, clip.poses, position, this.#height)
    return viewOf(clip.scene.camera, this.orbit, target, pane.width / pane.height)
  }

  #drawGround(project: Projection, view: View, z: number): void {
    const cell = niceLength(view.distance / 4)
    const [x0, y0] = [0, 1].map((i) => Math.round(view.target[i]! / cell) * cell) as [number, number]
    this.#context.strokeStyle = this.#palette?.groundLine ?? 'GrayText'
    this.#context.lineWidth = 1
    for (let i = -GROUND_SQUARES; i <= GROUND_SQUARES; i++) {
      const [reach, at] = [GROUND_SQUARES * cell, i * cell]
      this.#line(project([x0 + at, y0 - reach, z]), project([x0 + at, y0 + reach, z]))
      this.#line(project([x0 - reach, y0 + at, z]), project([x0 + reach, y0 + at, z]))
    }
  }

  #drawShadow({ geom, pose }: Placed, project: Projection, z: number): void {
    const centre: Vector = [pose[0]!, pose[1]!, z]
    const seen = project(centre)
    if (seen.depth <= 0) return
    const [a, b] = endsOf(geom, pose)
    this.#context.strokeStyle = this.#palette?.shadow ?? 'rgb(0 0 0 / 15%)'
    this.#context.lineCap = 'round'
    this.#context.lineWidth = Math.max(2, 1.6 * thicknessOf(geom) * seen.scale * 0.6)
    this.#line(project([a[0], a[1], z]), project([b[0], b[1], z]))
  }

  #drawGeom({ geom, pose }: Placed, scene: SceneFile, project: Projection): void {
    this.#context.globalAlpha = geom.rgba[3]!
    if (geom.type === 'box' || geom.type === 'mesh') {
      this.#drawHull(cornersOf(geom, scene, this.#meshPoints), pose, geom, project)
    } else {
      this.#drawLimb(geom, pose, project)
    }
    this.#context.globalAlpha = 1
  }

  #drawLimb(geom: Geom, pose: ArrayLike<number>, project: Projection): void {
    const [from, to] = endsOf(geom, pose).map(project) as [Seen, Seen]
    if (from.depth <= 0 || to.depth <= 0) return
    const width = 2 * thicknessOf(geom) * ((from.scale + to.scale) / 2)
    const context = this.#context
    context.lineCap = geom.type === 'cylinder' ? 'butt' : 'round'
    context.strokeStyle = cssColour(geom.rgba, 0.72)
    context.lineWidth = Math.max(width, 1.5)
    this.#line(from, to)
    context.strokeStyle = cssColour(geom.rgba, 1)
    context.lineWidth = Math.max(width * 0.72, 1)
    this.#line(from, to)
  }

  #drawHull(corners: Vector[], pose: ArrayLike<number>, geom: Geom, project: Projection): void {
    const seen = corners.map((corner) => project(moved(pose, corner)))
    if (seen.some(({ depth }) => depth <= 0)) return
    const context = this.#context
    context.beginPath()
    for (const { x, y } of hullOf(seen)) context.lineTo(x, y)
    context.closePath()
    context.fillStyle = cssColour(geom.rgba, 1)
    context.strokeStyle = cssColour(geom.rgba, 0.72)
    context.lineWidth = 1.5
    context.fill()
    context.stroke()
  }

  #line(from: Seen, to: Seen): void {
    if (from.depth <= 0 || to.depth <= 0) return
    this.#context.beginPath()
    this.#context.moveTo(from.x, from.y)
    // Note: a line without length is not drawn, a round end of a very short one is.
    this.#context.lineTo(to.x + 0.01, to.y)
    this.#context.stroke()
  }

  locate(pane: number, point: Vector): [number, number] | null {
    const clip = this.#clips[pane]
    const place = this.#panes[pane]
    if (!clip || place === undefined) return null
    const position = Number(this.#drawn.split(',')[pane] ?? 0) || 0
    const { x, y } = projectionOf(this.#viewOf(clip, place, position), place)(point)
    return [x, y]
  }

  dispose(): void {
    this.#clips = []
  }
}

/** Perspective, as three.js's camera sees it. */
function projectionOf({ eye, target, distance }: View, pane: Pane): Projection {
  const forward = [0, 1, 2].map((i) => (target[i]! - eye[i]!) / distance) as Vector
  const flat = Math.hypot(forward[0], forward[1]) || 1e-9
  const right: Vector = [forward[1] / flat, -forward[0] / flat, 0]
  const up: Vector = [right[1] * forward[2], -right[0] * forward[2], flat]
  const focal = pane.height / 2 / Math.tan((FIELD_OF_VIEW_DEG * Math.PI) / 360)
  return (point) => {
    const d: Vector = [point[0] - eye[0], point[1] - eye[1], point[2] - eye[2]]
    const depth = dot(d, forward)
    const scale = focal / Math.max(depth, 1e-3)
    return {
      x: pane.x + pane.width / 2 + dot(d, right) * scale,
      y: pane.y + pane.height / 2 - dot(d, up) * scale,
      scale,
      depth: depth < distance / 50 ? 0 : depth,
    }
  }
}

const bodyPose = new Float32Array(7)

function place(geom: Geom, clip: PosesClip, position: number, project: Projection): Placed {
  bodyPose.set([0, 0, 0, 1, 0, 0, 0])
  if (geom.body >= 0) poseAt(clip.poses, geom.body, position, bodyPose)
  const centre = moved(bodyPose, [geom.pos[0]!, geom.pos[1]!, geom.pos[2]!])
  const pose = [...centre, ...product(bodyPose, geom.quat)]
  return { geom, pose, depth: project(centre).depth }
}

/** The middle line of a geom: from one end to the other. */
function endsOf(geom: Geom, pose: ArrayLike<number>): [Vector, Vector] {
  const { type, size } = geom
  const half = type === 'capsule' || type === 'cylinder' ? size[1]! : 0
  return [moved(pose, [0, 0, -half]), moved(pose, [0, 0, half])]
}

function thicknessOf({ type, size }: Geom): number {
  return type === 'ellipsoid' || type === 'box' ? (size[0]! + size[1]! + size[2]!) / 3 : size[0]!
}

function cornersOf(geom: Geom, scene: SceneFile, kept: Map<Geom, Vector[]>): Vector[] {
  if (geom.type === 'box') {
    const [a, b, c] = geom.size as Vector
    return [-1, 1].flatMap((i) => [-1, 1].flatMap((j) => [-1, 1].map((k): Vector => [i * a, j * b, k * c])))
  }
  let points = kept.get(geom)
  if (points === undefined) {
    const all = floatsOf(scene.meshes[geom.mesh ?? 0]!.vertices)
    const every = Math.max(1, Math.ceil(all.length / 3 / MOST_MESH_POINTS))
    points = []
    for (let i = 0; i + 2 < all.length; i += 3 * every) points.push([all[i]!, all[i + 1]!, all[i + 2]!])
    kept.set(geom, points)
  }
  return points
}

/** The convex outline of points, by Andrew's monotone chain. */
export function hullOf<P extends { x: number; y: number }>(points: readonly P[]): P[] {
  const sorted = [...points].sort((one, other) => one.x - other.x || one.y - other.y)
  const half = (order: readonly P[]) => {
    const chain: P[] = []
    for (const point of order) {
      while (chain.length > 1 && turn(chain.at(-2)!, chain.at(-1)!, point) <= 0) chain.pop()
      chain.push(point)
    }
    return chain.slice(0, -1)
  }
  return [...half(sorted), ...half(sorted.reverse())]
}

type Flat = { x: number; y: number }
const turn = (a: Flat, b: Flat, c: Flat): number =>
  (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x)

function moved(pose: ArrayLike<number>, point: Vector): Vector {
  const [x, y, z] = rotate(pose, 3, point)
  return [x + pose[0]!, y + pose[1]!, z + pose[2]!]
}

/** The rotation of a pose, and then one in its frame: quaternions w x y z. */
function product(pose: ArrayLike<number>, q: readonly number[]): number[] {
  const [a, b, c, d] = [pose[3]!, pose[4]!, pose[5]!, pose[6]!]
  const [w, x, y, z] = q as [number, number, number, number]
  return [
    a * w - b * x - c * y - d * z,
    a * x + b * w + c * z - d * y,
    a * y - b * z + c * w + d * x,
    a * z + b * y - c * x + d * w,
  ]
}

const dot = (a: Vector, b: Vector): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2]

function cssColour(rgba: readonly number[], light: number): string {
  const [red, green, blue] = rgba.map((value) => Math.round(clamp(255 * light * value, 0, 255)))
  return `rgb(${red} ${green} ${blue})`
}
