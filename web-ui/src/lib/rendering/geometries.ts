/** three.js geometries of MuJoCo geoms. */

import {
  BoxGeometry,
  BufferAttribute,
  BufferGeometry,
  CapsuleGeometry,
  CylinderGeometry,
  PlaneGeometry,
  SphereGeometry,
} from 'three'

import type { Geom, Scene } from '../api-types'
import { decodeFloats, decodeIndices } from './packed-arrays'

/** Half the side of a plane that has no end, in metres. */
const INFINITE_PLANE = 40
const QUARTER_TURN = Math.PI / 2

/**
 * Return the surface of a geom.
 *
 * MuJoCo gives half sizes and aligns capsules and cylinders with z; three.js aligns them with y.
 *
 * @param numSegments around a round body.
 */
export function geometryOf(geom: Geom, file: Scene, numSegments: number): BufferGeometry {
  const [a, b, c] = geom.size as [number, number, number]
  switch (geom.type) {
    case 'sphere':
      return new SphereGeometry(a, numSegments, 0.7 * numSegments)
    case 'ellipsoid':
      return new SphereGeometry(1, numSegments, 0.7 * numSegments)
    case 'capsule':
      return new CapsuleGeometry(a, 2 * b, numSegments / 4, numSegments).rotateX(QUARTER_TURN)
    case 'cylinder':
      return new CylinderGeometry(a, a, 2 * b, numSegments).rotateX(QUARTER_TURN)
    case 'box':
      return new BoxGeometry(2 * a, 2 * b, 2 * c)
    case 'plane':
      return new PlaneGeometry(2 * (a || INFINITE_PLANE), 2 * (b || INFINITE_PLANE))
    case 'mesh':
      return meshGeometry(file, geom.mesh ?? 0)
    case 'hfield':
      return heightFieldGeometry(file, geom.hfield ?? 0)
  }
}

function meshGeometry(file: Scene, index: number): BufferGeometry {
  const { vertices, faces } = file.meshes[index]!
  const geometry = new BufferGeometry()
  geometry.setAttribute('position', new BufferAttribute(decodeFloats(vertices), 3))
  geometry.setIndex(new BufferAttribute(decodeIndices(faces), 1))
  geometry.computeVertexNormals()
  return geometry
}

function heightFieldGeometry(file: Scene, index: number): BufferGeometry {
  const { rows, columns, size, data } = file.hfields[index]!
  const heights = decodeFloats(data)
  const geometry = new PlaneGeometry(2 * size[0]!, 2 * size[1]!, columns - 1, rows - 1)
  const position = geometry.getAttribute('position')
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      // three.js starts at the largest y, MuJoCo at the smallest.
      const vertex = (rows - 1 - row) * columns + column
      position.setZ(vertex, heights[row * columns + column]! * size[2]!)
    }
  }
  geometry.computeVertexNormals()
  return geometry
}
