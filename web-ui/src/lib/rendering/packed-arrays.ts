/** Decoding of the packed arrays in a scene: base64 of little-endian float32 or uint32. */

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
