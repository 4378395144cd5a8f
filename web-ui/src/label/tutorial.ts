/** Practice comparisons with known answers, made in the browser. */

import type { Answer, Geom, Scene } from '../lib/api-types'
import type { ClipGroup, PosesClip } from '../lib/clips'

const FPS = 25
const NUM_FRAMES = 50

export interface Practice {
  instructions: string
  clips: ClipGroup
  /** The answers that fit the instructions. */
  answers: readonly Answer[]
  /** Why, for after the answer. */
  explanation: string
}

const geom = (type: Geom['type'], size: number[], z: number, rgba: number[]): Geom => ({
  type,
  body: 0,
  size,
  pos: [0, 0, z],
  quat: [1, 0, 0, 0],
  rgba,
  mesh: null,
  hfield: null,
})

/** A figure with a head, a body and a base. */
const scene: Scene = {
  version: 1,
  bodies: ['figure'],
  extent: 2,
  ground_z: 0,
  meshes: [],
  hfields: [],
  camera: { azimuth_deg: 90, elevation_deg: -12, distance: 4.2, lookat: [0, 0, 0.7], tracks: null },
  geoms: [
    { ...geom('plane', [0, 0, 1], 0, [0.8, 0.9, 0.8, 1]), body: -1 },
    geom('sphere', [0.17, 0, 0], 1.12, [0.86, 0.6, 0.4, 1]),
    geom('capsule', [0.12, 0.3, 0], 0.6, [0.33, 0.47, 0.68, 1]),
    geom('sphere', [0.14, 0, 0], 0.14, [0.86, 0.6, 0.4, 1]),
  ],
}

/** Where the figure stands and how far it leans, at a time from 0 to 1. */
type Motion = (time: number) => { x: number; z?: number; lean_rad?: number }

const hopTo = (end: number): Motion => (time) => ({
  x: -0.9 + (end + 0.9) * time,
  z: 0.3 * Math.abs(Math.sin(4 * Math.PI * time)),
})
const sway: Motion = (time) => ({ x: 0, lean_rad: 0.12 * Math.sin(4 * Math.PI * time) })
const fall: Motion = (time) => ({ x: 0, lean_rad: 1.45 * Math.min(1, 1.6 * time) ** 2 })

function clipOf(name: string, motion: Motion): PosesClip {
  const values = Array.from({ length: NUM_FRAMES }, (_, frame) => {
    const { x, z = 0, lean_rad = 0 } = motion(frame / (NUM_FRAMES - 1))
    // A rotation about y, which leans the figure along x.
    return [x, 0, z, Math.cos(lean_rad / 2), 0, Math.sin(lean_rad / 2), 0]
  }).flat()
  return {
    kind: 'poses',
    clip: {
      hash: name,
      kind: 'poses',
      url: name,
      scene_url: 'tutorial',
      num_frames: NUM_FRAMES,
      fps: FPS,
      seconds: NUM_FRAMES / FPS,
      speed: 1,
    },
    poses: { numFrames: NUM_FRAMES, numBodies: 1, fps: FPS, values: new Float32Array(values) },
    scene,
  }
}

const pairOf = (key: string, left: Motion, right: Motion): ClipGroup => ({
  key,
  sides: [clipOf(`${key} left`, left), clipOf(`${key} right`, right)],
})

export const PRACTICES: readonly Practice[] = [
  {
    instructions: 'Prefer the clip in which the figure hops farther.',
    clips: pairOf('hop', hopTo(1), hopTo(-0.3)),
    answers: ['left'],
    explanation: 'The figure hops about three times as far in the {left} clip.',
  },
  {
    instructions: 'Prefer the clip in which the figure stays upright.',
    clips: pairOf('upright', fall, sway),
    answers: ['right'],
    explanation: 'The figure falls over in the {left} clip and only sways in the {right} one.',
  },
  {
    instructions: 'Prefer the clip in which the figure hops farther.',
    clips: pairOf('same', hopTo(0.5), hopTo(0.5)),
    answers: ['equal'],
    explanation: 'Both clips are the same. Equal tells the agent that neither is better.',
  },
]
