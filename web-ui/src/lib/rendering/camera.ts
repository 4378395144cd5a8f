/** A camera that looks at a target point, in MuJoCo's angles; z points up. */

import type { PosesClip } from '../clips'
import { meanHeight, poseAt, type Poses } from '../poses'
import type { SceneCamera, Scene } from '../api-types'

export const FIELD_OF_VIEW_DEG = 45

const MIN_ELEVATION_DEG = -89
const MAX_ELEVATION_DEG = -2
const MIN_ZOOM = 0.3
const MAX_ZOOM = 4

export type Vector = [x: number, y: number, z: number]

/** The viewer's rotation and zoom, relative to the scene's own camera. */
export class Orbit {
  azimuth_deg = 0
  elevation_deg = 0
  zoom = 1

  turn(azimuth_deg: number, elevation_deg: number): void {
    this.azimuth_deg += azimuth_deg
    this.elevation_deg += elevation_deg
  }

  /** Scale the camera's distance; a factor below 1 moves it closer. */
  magnify(factor: number): void {
    this.zoom = clamp(this.zoom * factor, MIN_ZOOM, MAX_ZOOM)
  }

  reset(): void {
    this.azimuth_deg = 0
    this.elevation_deg = 0
    this.zoom = 1
  }
}

/** The position and the target of the camera, and the distance between them, in metres. */
export interface CameraView {
  eye: Vector
  target: Vector
  distance: number
}

/**
 * Compute where the camera is.
 *
 * @param aspect width divided by height of the pane; narrow panes are viewed from farther away.
 */
export function viewOf(camera: SceneCamera, orbit: Orbit, target: Vector, aspect: number): CameraView {
  const elevation_deg = clamp(
    camera.elevation_deg + orbit.elevation_deg,
    MIN_ELEVATION_DEG,
    MAX_ELEVATION_DEG,
  )
  // Discard rotation beyond the limit, so that turning back responds at once.
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
 * Compute the point the camera looks at. It follows the tracked body along the ground at a fixed
 * height.
 *
 * @param height of the target above zero, in metres.
 */
export function targetAt(scene: Scene, poses: Poses, position: number, height: number): Vector {
  const { tracks, lookat } = scene.camera
  if (tracks === null || tracks >= poses.numBodies) return [lookat[0]!, lookat[1]!, lookat[2]!]
  poseAt(poses, tracks, position, pose)
  return [pose[0]!, pose[1]!, height]
}

/** Compute one target height for all clips, so that the ground is level across the panes. */
export function commonHeight(clips: readonly (PosesClip | null)[]): number {
  const shown = clips.filter((clip) => clip !== null)
  if (shown.length === 0) return 0
  const { tracks, lookat } = shown[0]!.scene.camera
  if (tracks === null) return lookat[2]!
  return shown.reduce((sum, { poses }) => sum + meanHeight(poses), 0) / shown.length
}

export const clamp = (value: number, low: number, high: number): number =>
  Math.min(Math.max(value, low), high)

const radians = (degrees: number): number => (degrees * Math.PI) / 180
