import { describe, expect, it } from 'vitest'
import type { Geom, Scene } from '../src/lib/api-types'
import type { PosesClip } from '../src/lib/clips'
import { frameClips, Orbit, targetAt, viewOf } from '../src/lib/rendering/camera'
import { projectionOf } from '../src/lib/rendering/projection'

const POLE: Geom = {
  type: 'capsule',
  body: 0,
  size: [0.05, 0.6, 0],
  pos: [0, 0, 0],
  quat: [1, 0, 0, 0],
  rgba: [1, 0, 0, 1],
  mesh: null,
  hfield: null,
}

/** A pole 1.3 m long whose middle is at these heights; it turns by 90 degrees about y while it rises. */
function polesAt(...heights: number[]): PosesClip {
  const scene = {
    bodies: ['pole'],
    geoms: [POLE],
    meshes: [],
    hfields: [],
    camera: { distance: 1.5, azimuth_deg: 90, elevation_deg: -20, lookat: [0, 0, 0.65], tracks: 0 },
    ground_z: 0,
    extent: 1,
  } as unknown as Scene
  const values = heights.flatMap((z, i) => {
    const angle = (Math.PI / 4) * (i / Math.max(heights.length - 1, 1))
    return [3 * i, 0, z, Math.cos(angle), 0, Math.sin(angle), 0]
  })
  const poses = { numFrames: heights.length, numBodies: 1, fps: 20, values: Float32Array.from(values) }
  const clip = { num_frames: heights.length, fps: 20 } as PosesClip['clip']
  return { kind: 'poses', clip, poses, scene }
}

describe('frameClips', () => {
  it.each([0.5, 1, 4 / 3, 2])('keeps the whole body in panes of aspect %f', (aspect) => {
    const clips = [polesAt(0.65, 0.9, 2.5), polesAt(0.65)]
    const framing = frameClips(clips, aspect)
    const pane = { x: 0, y: 0, width: 300 * aspect, height: 300 }
    for (const { scene, poses } of clips) {
      for (let frame = 0; frame < poses.numFrames; frame++) {
        const target = targetAt(scene, poses, frame, framing.height)
        const project = projectionOf(viewOf(scene.camera, new Orbit(), target, framing.distance), pane)
        const [x, , z, w, , y] = poses.values.subarray(7 * frame)
        const axis = [2 * w! * y!, 0, 1 - 2 * y! * y!]
        for (const end of [-0.65, 0.65]) {
          const at = project([x! + end * axis[0]!, 0, z! + end * axis[2]!])
          expect(at.x).toBeGreaterThan(0)
          expect(at.x).toBeLessThan(pane.width)
          expect(at.y).toBeGreaterThan(0)
          expect(at.y).toBeLessThan(pane.height)
        }
      }
    }
  })

  it('keeps the distance of the scene where the body fits', () => {
    const clip = polesAt(0.65)
    clip.scene.camera.distance = 9
    expect(frameClips([clip], 4 / 3)).toEqual({ height: expect.closeTo(0.65), distance: 9 })
  })
})
