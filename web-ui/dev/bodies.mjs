// Moving bodies in the service's scene and pose formats, for development.

const IDENTITY = [1, 0, 0, 0]
const SKIN = [0.86, 0.6, 0.4, 1]
const CLOTH = [0.33, 0.47, 0.68, 1]
const FLOOR = { type: 'plane', body: -1, size: [0, 0, 1], pos: [0, 0, 0], quat: IDENTITY, rgba: [0.8, 0.9, 0.8, 1] }

const geom = (type, body, size, pos, rgba = SKIN, more = {}) => ({
  type, body, size, pos, quat: IDENTITY, rgba, mesh: null, hfield: null, ...more,
})
const limb = (body, radius, length, rgba = SKIN) =>
  geom('capsule', body, [radius, length / 2, 0], [0, 0, -length / 2], rgba)

/** A body hangs at `at` of its parent and turns about `axis` by `swing(t, gait)`. */
const HOPPER = {
  bodies: [
    { name: 'torso', parent: -1, at: [0, 0, 0], axis: [0, 1, 0], swing: (t, g) => 0.15 * g.lean + 0.2 * Math.sin(t * g.pace) },
    { name: 'thigh', parent: 0, at: [0, 0, -0.2], axis: [0, 1, 0], swing: (t, g) => -0.5 + 0.6 * Math.sin(t * g.pace + 0.4) * g.reach },
    { name: 'leg', parent: 1, at: [0, 0, -0.45], axis: [0, 1, 0], swing: (t, g) => 0.9 + 0.7 * Math.sin(t * g.pace + 2.2) * g.reach },
    { name: 'foot', parent: 2, at: [0, 0, -0.5], axis: [0, 1, 0], swing: (t, g) => -0.5 + 0.5 * Math.sin(t * g.pace + 3) },
  ],
  geoms: [
    geom('capsule', 0, [0.05, 0.2, 0], [0, 0, 0]),
    limb(1, 0.05, 0.45), limb(2, 0.04, 0.5),
    geom('capsule', 3, [0.06, 0.195, 0], [0.06, 0, 0], CLOTH, { quat: [0.7071068, 0, 0.7071068, 0] }),
  ],
  root: (t, g) => [g.speed * t, 0, 1.22 + 0.18 * g.reach * Math.abs(Math.sin(t * g.pace))],
  camera: { distance: 3, elevation_deg: -14, azimuth_deg: 90, lookat: [0, 0, 1.1], tracks: 0 },
}

const HUMANOID = {
  bodies: [
    { name: 'torso', parent: -1, at: [0, 0, 0], axis: [0, 1, 0], swing: (t, g) => 0.1 * g.lean + 0.06 * Math.sin(2 * t * g.pace) },
    { name: 'lwaist', parent: 0, at: [0, 0, -0.26], axis: [0, 0, 1], swing: (t, g) => 0.2 * Math.sin(t * g.pace) },
    { name: 'pelvis', parent: 1, at: [0, 0, -0.16], axis: [1, 0, 0], swing: (t, g) => 0.1 * Math.sin(t * g.pace) },
    ...['right', 'left'].flatMap((side, i) => {
      const sign = i === 0 ? -1 : 1
      const phase = i * Math.PI
      const first = 3 + 3 * i
      return [
        { name: `${side}_thigh`, parent: 2, at: [0, 0.1 * sign, -0.04], axis: [0, 1, 0], swing: (t, g) => 0.6 * g.reach * Math.sin(t * g.pace + phase) },
        { name: `${side}_shin`, parent: first, at: [0, 0.01 * -sign, -0.4], axis: [0, 1, 0], swing: (t, g) => 0.6 + 0.5 * g.reach * Math.sin(t * g.pace + phase - 1.2) },
        { name: `${side}_foot`, parent: first + 1, at: [0, 0, -0.39], axis: [0, 1, 0], swing: () => -0.3 },
      ]
    }),
    ...['right', 'left'].flatMap((side, i) => {
      const sign = i === 0 ? -1 : 1
      const first = 9 + 2 * i
      return [
        { name: `${side}_upper_arm`, parent: 0, at: [0, 0.17 * sign, 0.06], axis: [0, 1, 0], swing: (t, g) => 0.7 * g.reach * Math.sin(t * g.pace + (1 - i) * Math.PI) },
        { name: `${side}_lower_arm`, parent: first, at: [0, 0.03 * sign, -0.27], axis: [0, 1, 0], swing: (t, g) => -0.7 - 0.4 * Math.sin(t * g.pace) },
      ]
    }),
  ],
  geoms: [
    geom('capsule', 0, [0.07, 0.07, 0], [0, 0, 0], CLOTH, { quat: [0.7071068, 0.7071068, 0, 0] }),
    geom('sphere', 0, [0.09, 0, 0], [0, 0, 0.19]),
    geom('capsule', 0, [0.06, 0.06, 0], [-0.01, 0, -0.12], CLOTH, { quat: [0.7071068, 0.7071068, 0, 0] }),
    geom('capsule', 1, [0.06, 0.06, 0], [0, 0, 0], CLOTH, { quat: [0.7071068, 0.7071068, 0, 0] }),
    geom('capsule', 2, [0.09, 0.07, 0], [-0.02, 0, 0], CLOTH, { quat: [0.7071068, 0.7071068, 0, 0] }),
    ...[3, 6].flatMap((first) => [
      limb(first, 0.06, 0.4), limb(first + 1, 0.049, 0.36),
      geom('sphere', first + 2, [0.075, 0, 0], [0.03, 0, -0.02], CLOTH),
    ]),
    ...[9, 11].flatMap((first) => [
      limb(first, 0.04, 0.28), limb(first + 1, 0.031, 0.26),
      geom('sphere', first + 1, [0.04, 0, 0], [0, 0, -0.29]),
    ]),
  ],
  root: (t, g) => [g.speed * t, 0.2 * Math.sin(0.6 * t), 1.3 + 0.03 * Math.sin(2 * t * g.pace)],
  camera: { distance: 3.6, elevation_deg: -14, azimuth_deg: 110, lookat: [0, 0, 1.1], tracks: 0 },
}

/** One of everything: each geom type, a mesh, a height field, something transparent. */
const GALLERY = {
  bodies: ['sphere', 'capsule', 'ellipsoid', 'cylinder', 'box', 'mesh', 'glass'].map((name, i) => ({
    name, parent: -1, at: [(i - 3) * 0.75, 0, 0.5], axis: [0.6, 0.64, 0.48], swing: (t) => t + i,
  })),
  geoms: [
    geom('sphere', 0, [0.25, 0, 0], [0, 0, 0], [0.85, 0.35, 0.3, 1]),
    geom('capsule', 1, [0.12, 0.2, 0], [0, 0, 0], [0.9, 0.6, 0.25, 1]),
    geom('ellipsoid', 2, [0.3, 0.18, 0.1], [0, 0, 0], [0.85, 0.8, 0.3, 1]),
    geom('cylinder', 3, [0.2, 0.2, 0], [0, 0, 0], [0.4, 0.7, 0.4, 1]),
    geom('box', 4, [0.22, 0.16, 0.1], [0, 0, 0], [0.3, 0.6, 0.75, 1]),
    geom('mesh', 5, [0.2, 0.2, 0.2], [0, 0, 0], [0.45, 0.45, 0.8, 1], { mesh: 0 }),
    geom('ellipsoid', 6, [0.25, 0.25, 0.25], [0, 0, 0], [0.7, 0.4, 0.75, 0.4]),
    geom('hfield', -1, [1, 1, 1], [0, 1.6, 0], [0.6, 0.65, 0.55, 1], { hfield: 0 }),
  ],
  root: () => [0, 0, 0],
  camera: { distance: 5, elevation_deg: -22, azimuth_deg: 90, lookat: [0, 0.4, 0.4], tracks: null },
  meshes: [octahedron(0.28)],
  hfields: [hills(24, 40)],
}

export const BODIES = { hopper: HOPPER, humanoid: HUMANOID, gallery: GALLERY }

export function sceneOf(body) {
  return {
    version: 1,
    bodies: body.bodies.map(({ name }) => name),
    geoms: [{ ...FLOOR, mesh: null, hfield: null }, ...body.geoms],
    meshes: body.meshes ?? [],
    hfields: body.hfields ?? [],
    camera: body.camera,
    extent: 4,
    ground_z: 0,
  }
}

/** @returns [frames, bodies, 7] as a flat array. */
export function posesOf(body, gait, numFrames, fps) {
  const values = []
  for (let frame = 0; frame < numFrames; frame++) {
    const t = gait.start + frame / fps
    const placed = []
    for (const part of body.bodies) {
      const parent = placed[part.parent] ?? { pos: body.root(t, gait), quat: IDENTITY }
      const pos = add(parent.pos, rotate(parent.quat, part.at))
      const quat = multiply(parent.quat, turn(part.axis, part.swing(t, gait)))
      placed.push({ pos, quat })
      values.push(...pos, ...quat)
    }
  }
  return values
}

/** A pose file: dtype 0 is float32, 1 is int16 with one step per component. */
export function packPoses(values, numFrames, fps, dtype = 1) {
  const numBodies = values.length / numFrames / 7
  const extra = dtype === 1 ? 56 : 0
  const file = new ArrayBuffer(32 + extra + values.length * (dtype === 1 ? 2 : 4))
  const view = new DataView(file)
  ;[...'RLTP'].forEach((letter, i) => view.setUint8(i, letter.charCodeAt(0)))
  view.setUint16(4, 1, true)
  view.setUint16(6, dtype, true)
  view.setUint32(8, numFrames, true)
  view.setUint32(12, numBodies, true)
  view.setFloat32(16, fps, true)
  if (dtype === 0) values.forEach((value, i) => view.setFloat32(32 + 4 * i, value, true))
  else packQuantised(view, values)
  return file
}

function packQuantised(view, values) {
  for (let component = 0; component < 7; component++) {
    const own = values.filter((_, i) => i % 7 === component)
    const low = Math.min(...own)
    const high = Math.max(...own)
    const offset = Math.fround((low + high) / 2)
    const scale = Math.fround(Math.max(high - low, 1e-9) / 65_000)
    view.setFloat32(32 + 4 * component, offset, true)
    view.setFloat32(60 + 4 * component, scale, true)
    own.forEach((value, i) => {
      view.setInt16(88 + 2 * (7 * i + component), Math.round((value - offset) / scale), true)
    })
  }
}

const add = (a, b) => a.map((value, i) => value + b[i])

function turn(axis, angle) {
  const s = Math.sin(angle / 2) / Math.hypot(...axis)
  return [Math.cos(angle / 2), ...axis.map((value) => value * s)]
}

function multiply([a, b, c, d], [w, x, y, z]) {
  return [
    a * w - b * x - c * y - d * z,
    a * x + b * w + c * z - d * y,
    a * y - b * z + c * w + d * x,
    a * z + b * y - c * x + d * w,
  ]
}

function rotate(q, v) {
  const [, ...turned] = multiply(multiply(q, [0, ...v]), [q[0], -q[1], -q[2], -q[3]])
  return turned
}

function octahedron(r) {
  const vertices = new Float32Array([r, 0, 0, -r, 0, 0, 0, r, 0, 0, -r, 0, 0, 0, r, 0, 0, -r])
  const faces = new Uint32Array([0, 2, 4, 2, 1, 4, 1, 3, 4, 3, 0, 4, 2, 0, 5, 1, 2, 5, 3, 1, 5, 0, 3, 5])
  return { vertices: base64(vertices), faces: base64(faces) }
}

function hills(rows, columns) {
  const data = new Float32Array(rows * columns)
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      data[row * columns + column] = 0.5 + 0.5 * Math.sin(column / 3) * Math.cos(row / 3)
    }
  }
  return { rows, columns, size: [2.6, 0.7, 0.5, 0.1], data: base64(data) }
}

function base64(array) {
  return Buffer.from(array.buffer).toString('base64')
}
