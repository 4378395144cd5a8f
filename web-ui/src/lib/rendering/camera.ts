/** A camera that looks at a point; MuJoCo's angles, z up. */

import { meanHeight, poseAt, type Poses } from '../poses'
import type { SceneCamera, SceneFile } from '../types'

export const FIELD_OF_VIEW_DEG = 45

const LOWEST_DEG = -89
const HIGHEST_DEG = -2
const NEAREST = 0.3
const FARTHEST = 4

export type Vector = [x: number, y: number, z: number]

/** How the person looks at the clips: turned and zoomed from where the scene's camera begins. */
export class Orbit {
  azimuth_deg = 0
  elevation_deg = 0
  zoom = 1

  turn(azimuth_deg: number, elevation_deg: number): void {
    this.azimuth_deg += azimuth_deg
    this.elevation_deg += elevation_deg
  }

  /** Nearer for a factor below 1. */
  magnify(factor: number): void {
    this.zoom = clamp(this.zoom * factor, NEAREST, FARTHEST)
  }

  reset(): void {
    this.azimuth_deg = 0
    this.elevation_deg = 0
    this.zoom = 1
  }
}

export interface View {
  eye: Vector
  target: Vector
  distance: number
}

/**
 * Where the camera is.
 *
 * @param aspect width by height of the picture; narrow ones are seen from farther away.
 */
export function viewOf(camera: SceneCamera, orbit: Orbit, target: Vector, aspect: number): View {
  const elevation_deg = clamp(camera.elevation_deg + orbit.elevation_deg, LOWEST_DEG, HIGHEST_DEG)
  // Note: what went over the edge is forgotten, so that turning back answers at once.
  orbit.elevation_deg = elevation_deg - camera.elevation_deg
  const azimuth = radians(camera.azimuth_deg + orbit.azimuth_deg)
  const elevation = radians(elevation_deg)
  const distance = camera.distance * orbit.zoom * Math.max(1, 1.25 / aspect)
  const eye: Vector = [
    target[0] - distance * Math.cos(elevation) * Math.cos(azimuth),
    target[1] - distance * Math.cos(elevation) * Math.sin(azimuth),
    target[2] - distance * Math.sin(elevation),
  ]
  return { eye, target, distance }
}

const pose = new Float32Array(7)

/**
 * What the camera looks at: along the ground it follows the tracked body, its height stays.
 *
 * @param height of the target above zero, in metres.
 */
export function targetAt(scene: SceneFile, poses: Poses, position: number, height: number): Vector {
  const { tracks, lookat } = scene.camera
  if (tracks === null || tracks >= poses.numBodies) return [lookat[0]!, lookat[1]!, lookat[2]!]
  poseAt(poses, tracks, position, pose)
  return [pose[0]!, pose[1]!, height]
}

/** One height for all clips that are seen together, so that their grounds are level. */
export function commonHeight(scene: SceneFile, clips: readonly Poses[]): number {
  const { tracks, lookat } = scene.camera
  if (tracks === null || clips.length === 0) return lookat[2]!
  return clips.reduce((sum, poses) => sum + meanHeight(poses), 0) / clips.length
}

/** Rotates a vector by the quaternion w x y z at an offset of an array. */
export function rotate(q: ArrayLike<number>, at: number, v: Vector): Vector {
  const [w, x, y, z] = [q[at]!, q[at + 1]!, q[at + 2]!, q[at + 3]!]
  const [a, b, c] = v
  const tx = 2 * (y * c - z * b)
  const ty = 2 * (z * a - x * c)
  const tz = 2 * (x * b - y * a)
  return [
    a + w * tx + y * tz - z * ty,
    b + w * ty + z * tx - x * tz,
    c + w * tz + x * ty - y * tx,
  ]
}

export const clamp = (value: number, low: number, high: number): number =>
  Math.min(Math.max(value, low), high)

const radians = (degrees: number): number => (degrees * Math.PI) / 180
