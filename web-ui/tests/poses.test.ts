import { describe, expect, it } from 'vitest'
import { CorruptClip, HEADER_BYTES, decodePoses, poseAt } from '../src/lib/poses'

const POSES = [
  [1, 2, 3, 1, 0, 0, 0],
  [2, 2, 3, Math.SQRT1_2, 0, 0, Math.SQRT1_2],
]

/** Return a file with one body and two frames at 20 Hz. */
function poseFile(dtype: 0 | 1): ArrayBuffer {
  const bytesPerValue = dtype === 0 ? 4 : 2
  const quantisationBytes = dtype === 0 ? 0 : 56
  const file = new ArrayBuffer(HEADER_BYTES + quantisationBytes + 14 * bytesPerValue)
  const view = new DataView(file)
  ;[...'RLTP'].forEach((letter, i) => view.setUint8(i, letter.charCodeAt(0)))
  view.setUint16(4, 1, true)
  view.setUint16(6, dtype, true)
  view.setUint32(8, 2, true)
  view.setUint32(12, 1, true)
  view.setFloat32(16, 20, true)
  const scale = 1e-4
  for (let i = 0; dtype === 1 && i < 7; i++) {
    view.setFloat32(HEADER_BYTES + 4 * i, 1, true)
    view.setFloat32(HEADER_BYTES + 28 + 4 * i, scale, true)
  }
  POSES.flat().forEach((value, i) => {
    const at = HEADER_BYTES + quantisationBytes + i * bytesPerValue
    if (dtype === 0) view.setFloat32(at, value, true)
    else view.setInt16(at, Math.round((value - 1) / scale), true)
  })
  return file
}

describe('pose files', () => {
  it.each([0, 1] as const)('are decoded from dtype %i', (dtype) => {
    const poses = decodePoses(poseFile(dtype))
    expect([poses.numFrames, poses.numBodies, poses.fps]).toEqual([2, 1, 20])
    POSES.flat().forEach((value, i) => expect(poses.values[i]).toBeCloseTo(value, 3))
  })

  it('are interpolated between frames', () => {
    const out = new Float32Array(7)
    poseAt(decodePoses(poseFile(0)), 0, 0.5, out)
    expect(out[0]).toBeCloseTo(1.5)
    expect(out[3]).toBeCloseTo(Math.cos(Math.PI / 8))
    expect(out[6]).toBeCloseTo(Math.sin(Math.PI / 8))
  })

  it('are rejected if truncated', () => {
    const file = poseFile(0)
    expect(() => decodePoses(file.slice(0, file.byteLength - 1))).toThrow(CorruptClip)
    expect(() => decodePoses(file.slice(0, 20))).toThrow(CorruptClip)
  })

  it('are rejected if the header contradicts the size', () => {
    const file = poseFile(1)
    new DataView(file).setUint32(8, 2 ** 31, true)
    expect(() => decodePoses(file)).toThrow(/instead of/)
  })

  it.each([
    [0, 88],
    [4, 9],
    [6, 7],
  ])('are rejected with an invalid byte at offset %i', (at, value) => {
    const file = poseFile(0)
    new DataView(file).setUint8(at, value)
    expect(() => decodePoses(file)).toThrow(CorruptClip)
  })

  it('are rejected with values that are not finite', () => {
    const file = poseFile(0)
    new DataView(file).setFloat32(HEADER_BYTES, NaN, true)
    expect(() => decodePoses(file)).toThrow(CorruptClip)
  })
})
