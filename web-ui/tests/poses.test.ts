import { describe, expect, it } from 'vitest'
import { CorruptClip, HEADER_BYTES, decodePoses, poseAt } from '../src/lib/poses'

const POSES = [
  [1, 2, 3, 1, 0, 0, 0],
  [2, 2, 3, Math.SQRT1_2, 0, 0, Math.SQRT1_2],
]

/** Return a file with one body and two frames at 20 Hz. */
function poseFile(): ArrayBuffer {
  const file = new ArrayBuffer(HEADER_BYTES + 14 * 4)
  const view = new DataView(file)
  ;[...'RLTP'].forEach((letter, i) => view.setUint8(i, letter.charCodeAt(0)))
  view.setUint16(4, 1, true)
  view.setUint32(8, 2, true)
  view.setUint32(12, 1, true)
  view.setFloat32(16, 20, true)
  POSES.flat().forEach((value, i) => view.setFloat32(HEADER_BYTES + 4 * i, value, true))
  return file
}

describe('pose files', () => {
  it('are decoded', () => {
    const poses = decodePoses(poseFile())
    expect([poses.numFrames, poses.numBodies, poses.fps]).toEqual([2, 1, 20])
    POSES.flat().forEach((value, i) => expect(poses.values[i]).toBeCloseTo(value, 3))
  })

  it('are interpolated between frames', () => {
    const out = new Float32Array(7)
    poseAt(decodePoses(poseFile()), 0, 0.5, out)
    expect(out[0]).toBeCloseTo(1.5)
    expect(out[3]).toBeCloseTo(Math.cos(Math.PI / 8))
    expect(out[6]).toBeCloseTo(Math.sin(Math.PI / 8))
  })

  it('are rejected if truncated', () => {
    const file = poseFile()
    expect(() => decodePoses(file.slice(0, file.byteLength - 1))).toThrow(CorruptClip)
    expect(() => decodePoses(file.slice(0, 20))).toThrow(CorruptClip)
  })

  it('are rejected if the header contradicts the size', () => {
    const file = poseFile()
    new DataView(file).setUint32(8, 2 ** 31, true)
    expect(() => decodePoses(file)).toThrow(/instead of/)
  })

  it.each([
    [0, 88],
    [4, 9],
  ])('are rejected with an invalid byte at offset %i', (at, value) => {
    const file = poseFile()
    new DataView(file).setUint8(at, value)
    expect(() => decodePoses(file)).toThrow(CorruptClip)
  })

  it('are rejected with values that are not finite', () => {
    const file = poseFile()
    new DataView(file).setFloat32(HEADER_BYTES, NaN, true)
    expect(() => decodePoses(file)).toThrow(CorruptClip)
  })
})
