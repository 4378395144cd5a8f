/** Simplified shapes of MuJoCo geoms for the 2-D canvas: a thick line or a convex hull. */

import type { Geom, Scene } from '../api-types'
import { decodeFloats } from './packed-arrays'
import type { Vector } from './camera'
import { transform } from './projection'

const MAX_MESH_POINTS = 120

/** Return both ends of a geom's axis in the world. */
export function endsOf({ type, size }: Geom, pose: ArrayLike<number>): [Vector, Vector] {
  const half = type === 'capsule' || type === 'cylinder' ? size[1]! : 0
  return [transform(pose, [0, 0, -half]), transform(pose, [0, 0, half])]
}

/** Return a geom's radius, or its mean half size. */
export function thicknessOf({ type, size }: Geom): number {
  return type === 'ellipsoid' || type === 'box' ? (size[0]! + size[1]! + size[2]!) / 3 : size[0]!
}

/** Return the radius of the spheres around a geom's ends that enclose it. */
export function radiusOf({ type, size, mesh }: Geom, scene: Scene): number {
  if (type === 'mesh') {
    const values = decodeFloats(scene.meshes[mesh ?? 0]!.vertices)
    let radius = 0
    for (let i = 0; i + 2 < values.length; i += 3) {
      radius = Math.max(radius, Math.hypot(values[i]!, values[i + 1]!, values[i + 2]!))
    }
    return radius
  }
  if (type === 'box') return Math.hypot(...size)
  return type === 'ellipsoid' ? Math.max(...size) : size[0]!
}

/** Return the corners of a box, or at most 120 vertices of a mesh, in the geom's frame. */
export function cornersOf(geom: Geom, scene: Scene): Vector[] {
  if (geom.type === 'box') {
    const [a, b, c] = geom.size as Vector
    return [-1, 1].flatMap((i) => [-1, 1].flatMap((j) => [-1, 1].map((k): Vector => [i * a, j * b, k * c])))
  }
  const values = decodeFloats(scene.meshes[geom.mesh ?? 0]!.vertices)
  const stride = 3 * Math.max(1, Math.ceil(values.length / 3 / MAX_MESH_POINTS))
  const corners: Vector[] = []
  for (let i = 0; i + 2 < values.length; i += stride) {
    corners.push([values[i]!, values[i + 1]!, values[i + 2]!])
  }
  return corners
}

interface Point {
  x: number
  y: number
}

/** Compute the convex hull of points by Andrew's monotone chain. */
export function convexHull<P extends Point>(points: readonly P[]): P[] {
  const sorted = [...points].sort((one, other) => one.x - other.x || one.y - other.y)
  const half = (ordered: readonly P[]) => {
    const chain: P[] = []
    for (const point of ordered) {
      while (chain.length > 1 && cross(chain.at(-2)!, chain.at(-1)!, point) <= 0) chain.pop()
      chain.push(point)
    }
    return chain.slice(0, -1)
  }
  return [...half(sorted), ...half(sorted.reverse())]
}

/** Return the z component of (b - a) x (c - a); positive for a left turn. */
const cross = (a: Point, b: Point, c: Point): number =>
  (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x)
