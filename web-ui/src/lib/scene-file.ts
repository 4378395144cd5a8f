/** Scene files: the geometry of an environment in MuJoCo's conventions. */

/** Sizes are half sizes, capsules lie along z, quaternions are w x y z. */
export interface SceneFile {
  version: number
  bodies: string[]
  geoms: Geom[]
  /** Vertices and faces as base64 of little-endian float32 and uint32. */
  meshes: { vertices: string; faces: string }[]
  hfields: { rows: number; columns: number; size: number[]; data: string }[]
  camera: SceneCamera
  extent: number
  ground_z: number | null
}

export interface Geom {
  type: 'plane' | 'sphere' | 'capsule' | 'ellipsoid' | 'cylinder' | 'box' | 'mesh' | 'hfield'
  /** Index into the bodies; -1 is the world. */
  body: number
  size: number[]
  pos: number[]
  quat: number[]
  rgba: number[]
  mesh: number | null
  hfield: number | null
}

export interface SceneCamera {
  distance: number
  elevation_deg: number
  azimuth_deg: number
  lookat: number[]
  /** Index of the body that the camera follows. */
  tracks: number | null
}

export function decodeFloats(base64: string): Float32Array {
  const view = decodeBytes(base64)
  return Float32Array.from({ length: view.byteLength >> 2 }, (_, i) => view.getFloat32(4 * i, true))
}

export function decodeIndices(base64: string): Uint32Array {
  const view = decodeBytes(base64)
  return Uint32Array.from({ length: view.byteLength >> 2 }, (_, i) => view.getUint32(4 * i, true))
}

function decodeBytes(base64: string): DataView {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
  return new DataView(bytes.buffer)
}
