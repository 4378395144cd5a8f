/** Perspective projection and rigid transformations; quaternions are w x y z. */

import { FIELD_OF_VIEW_DEG, type CameraView, type Vector } from './camera'
import type { Pane } from './renderer'

/** A point on the canvas. */
export interface Projected {
  x: number
  y: number
  /** Pixels per metre at this depth. */
  scale: number
  /** Distance along the view in metres; 0 behind the near plane. */
  depth: number
}

export type Projection = (point: Vector) => Projected

/** Return a perspective projection that agrees with three.js's camera. */
export function projectionOf({ eye, target, distance }: CameraView, pane: Pane): Projection {
  const forward = [0, 1, 2].map((i) => (target[i]! - eye[i]!) / distance) as Vector
  const horizontal = Math.hypot(forward[0], forward[1]) || 1e-9
  const right: Vector = [forward[1] / horizontal, -forward[0] / horizontal, 0]
  const up: Vector = [right[1] * forward[2], -right[0] * forward[2], horizontal]
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

/** Transform a point from a body's frame to the world; the pose is x y z, w x y z. */
export function transform(pose: ArrayLike<number>, [a, b, c]: Vector): Vector {
  const [w, x, y, z] = [pose[3]!, pose[4]!, pose[5]!, pose[6]!]
  // v + w t + q x t, with t = 2 q x v
  const tx = 2 * (y * c - z * b)
  const ty = 2 * (z * a - x * c)
  const tz = 2 * (x * b - y * a)
  return [
    pose[0]! + a + w * tx + y * tz - z * ty,
    pose[1]! + b + w * ty + z * tx - x * tz,
    pose[2]! + c + w * tz + x * ty - y * tx,
  ]
}

/** Return the product of a pose's rotation and a rotation in its frame. */
export function rotateBy(pose: ArrayLike<number>, q: readonly number[]): number[] {
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
