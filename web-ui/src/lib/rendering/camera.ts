/** A camera that looks at a target point, in MuJoCo's angles; z points up. */

import type { PosesClip } from '../clips'
import { poseAt, type Poses } from '../poses'
import type { SceneCamera, Scene } from '../api-types'
import { endsOf, radiusOf } from './outlines'
import { rotateBy, transform } from './projection'

export const FIELD_OF_VIEW_DEG = 45

const MIN_ELEVATION_DEG = -89
const MAX_ELEVATION_DEG = -2
const MIN_ZOOM = 0.3
const MAX_ZOOM = 4
/** Share of the field of view that the shapes fill at most. */
const USED_VIEW = 0.95
/** Panes with a smaller aspect ratio are viewed from farther away. */
const NARROWEST = 1.25

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
 * @param framedDistance distance to the target in metres, before the viewer's zoom.
 */
export function viewOf(
  camera: SceneCamera,
  orbit: Orbit,
  target: Vector,
  framedDistance: number,
): CameraView {
  const elevation_deg = clamp(
    camera.elevation_deg + orbit.elevation_deg,
    MIN_ELEVATION_DEG,
    MAX_ELEVATION_DEG,
  )
  // Discard rotation beyond the limit, so that turning back responds at once.
  orbit.elevation_deg = elevation_deg - camera.elevation_deg
  const azimuth = radians(camera.azimuth_deg + orbit.azimuth_deg)
  const elevation = radians(elevation_deg)
  const distance = framedDistance * orbit.zoom
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

/** The height of the camera's target and its distance, in metres: one for all clips on screen. */
export interface Framing {
  height: number
  distance: number
}

/**
 * Frame clips so that all moving shapes stay within their panes in all frames, and that the ground
 * is level across the panes. `aim_camera` in `clips/scene.py` does the same for films.
 *
 * @param aspect width of a pane divided by its height.
 */
export function frameClips(clips: readonly (PosesClip | null)[], aspect: number): Framing {
  const shown = clips.filter((clip) => clip !== null)
  if (shown.length === 0) return { height: 0, distance: 1 }
  const { camera } = shown[0]!.scene
  const spheres = shown.flatMap(enclosingSpheres)
  let [low, high] = [Infinity, -Infinity]
  for (const [, , z, radius] of spheres) {
    low = Math.min(low, z - radius)
    high = Math.max(high, z + radius)
  }
  const isFixed = camera.tracks === null || spheres.length === 0
  const height = isFixed ? camera.lookat[2]! : (low + high) / 2
  const [turn, tilt] = [radians(camera.azimuth_deg), radians(camera.elevation_deg)]
  const halfHeight = (radians(FIELD_OF_VIEW_DEG) / 2) * USED_VIEW
  const halfWidth = Math.atan(aspect * Math.tan(halfHeight))
  let distance = camera.distance * Math.max(1, NARROWEST / aspect)
  for (const [x, y, z, radius] of spheres) {
    const away = x * Math.cos(turn) + y * Math.sin(turn)
    const across = x * Math.sin(turn) - y * Math.cos(turn)
    const up = (z - height) * Math.cos(tilt) - away * Math.sin(tilt)
    const depth = away * Math.cos(tilt) + (z - height) * Math.sin(tilt)
    for (const [offset, angle] of [[across, halfWidth], [up, halfHeight]] as const) {
      // A sphere touches the edge of the view, at an angle a, where
      // |offset| cos a + radius = (distance + depth) sin a.
      const reach = Math.abs(offset) * Math.cos(angle) + radius
      distance = Math.max(distance, reach / Math.sin(angle) - depth)
    }
  }
  return { height, distance }
}

type Sphere = [x: number, y: number, z: number, radius: number]

/** Return spheres around the ends of all moving shapes, in all frames, with x and y from the target. */
function enclosingSpheres({ scene, poses }: PosesClip): Sphere[] {
  const spheres: Sphere[] = []
  const moving = scene.geoms.filter(
    ({ type, body }) => type !== 'plane' && type !== 'hfield' && body >= 0 && body < poses.numBodies,
  )
  const radii = moving.map((geom) => radiusOf(geom, scene))
  for (let frame = 0; frame < poses.numFrames; frame++) {
    const [x0, y0] = targetAt(scene, poses, frame, 0)
    for (const [i, geom] of moving.entries()) {
      poseAt(poses, geom.body, frame, pose)
      const place = transform(pose, geom.pos as Vector)
      const placed = [...place, ...rotateBy(pose, geom.quat)]
      for (const [x, y, z] of endsOf(geom, placed)) spheres.push([x - x0, y - y0, z, radii[i]!])
    }
  }
  return spheres
}

export const clamp = (value: number, low: number, high: number): number =>
  Math.min(Math.max(value, low), high)

const radians = (degrees: number): number => (degrees * Math.PI) / 180
