/** Pose files: the position and rotation of each body in each frame of a clip. */

/** Little-endian; byte offsets: 0 magic, 4 version, 6 zero, 8 frames, 12 bodies, 16 fps, 20 zero. */
export const HEADER_BYTES = 32
const MAGIC = 'RLTP'
const VERSION = 1

/** x y z, then the quaternion w x y z. */
export const PER_BODY = 7

export interface Poses {
  numFrames: number
  numBodies: number
  fps: number
  /** [frame, body, x y z w x y z], in metres and unit quaternions. */
  values: Float32Array
}

/** A pose file is truncated or damaged. */
export class CorruptClip extends Error {}

/**
 * Decode a pose file.
 *
 * @throws CorruptClip if the header is invalid or the size does not match it.
 */
export function decodePoses(file: ArrayBuffer): Poses {
  const header = readHeader(file)
  const count = header.numFrames * header.numBodies * PER_BODY
  const view = new DataView(file, HEADER_BYTES)
  const values = Float32Array.from({ length: count }, (_, i) => view.getFloat32(4 * i, true))
  if (!values.every(Number.isFinite)) throw new CorruptClip('The clip contains values that are not finite.')
  return { numFrames: header.numFrames, numBodies: header.numBodies, fps: header.fps, values }
}

function readHeader(file: ArrayBuffer) {
  if (file.byteLength < HEADER_BYTES) {
    throw new CorruptClip(`The clip has ${file.byteLength} bytes; the header needs ${HEADER_BYTES}.`)
  }
  const view = new DataView(file)
  const magic = String.fromCharCode(...new Uint8Array(file, 0, 4))
  if (magic !== MAGIC) throw new CorruptClip('The file is not a pose file.')
  const version = view.getUint16(4, true)
  if (version !== VERSION) {
    throw new CorruptClip(`The clip has version ${version}; this page reads version ${VERSION}.`)
  }
  const numFrames = view.getUint32(8, true)
  const numBodies = view.getUint32(12, true)
  const fps = view.getFloat32(16, true)
  if (numFrames === 0 || numBodies === 0) throw new CorruptClip('The clip is empty.')
  if (!(fps > 0 && fps <= 1000)) throw new CorruptClip(`The frame rate of the clip is invalid: ${fps}.`)
  const expected = HEADER_BYTES + 4 * numFrames * numBodies * PER_BODY
  if (file.byteLength !== expected) {
    throw new CorruptClip(`The clip has ${file.byteLength} bytes instead of ${expected}.`)
  }
  return { numFrames, numBodies, fps }
}

/**
 * Interpolate the pose of a body: positions linearly, rotations spherically along the shorter arc.
 *
 * @param position in frames from the start; integers are recorded frames.
 * @param out [7] x y z, w x y z.
 */
export function poseAt(poses: Poses, body: number, position: number, out: Float32Array): void {
  const last = poses.numFrames - 1
  const clamped = Math.min(Math.max(position, 0), last)
  const frame = Math.floor(clamped)
  const fraction = clamped - frame
  const stride = poses.numBodies * PER_BODY
  const from = frame * stride + body * PER_BODY
  const to = Math.min(frame + 1, last) * stride + body * PER_BODY
  const v = poses.values
  for (let i = 0; i < 3; i++) out[i] = v[from + i]! + fraction * (v[to + i]! - v[from + i]!)
  slerp(v, from + 3, to + 3, fraction, out)
}

function slerp(v: Float32Array, from: number, to: number, fraction: number, out: Float32Array): void {
  let cosine = 0
  for (let i = 0; i < 4; i++) cosine += v[from + i]! * v[to + i]!
  // q and -q are the same rotation: choose the sign with the shorter arc.
  const sign = cosine < 0 ? -1 : 1
  const angle = Math.acos(Math.min(Math.abs(cosine), 1))
  const isClose = angle < 1e-3
  // Close to zero the formula divides by sin(0); linear interpolation is exact enough there.
  const a = isClose ? 1 - fraction : Math.sin((1 - fraction) * angle) / Math.sin(angle)
  const b = sign * (isClose ? fraction : Math.sin(fraction * angle) / Math.sin(angle))
  let norm = 0
  for (let i = 0; i < 4; i++) {
    out[3 + i] = a * v[from + i]! + b * v[to + i]!
    norm += out[3 + i]! ** 2
  }
  const scale = 1 / (Math.sqrt(norm) || 1)
  for (let i = 3; i < 7; i++) out[i] = out[i]! * scale
}
