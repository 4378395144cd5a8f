import { Box3 } from 'three'
import { describe, expect, it } from 'vitest'
import type { Geom, Scene } from '../src/lib/api-types'
import type { PosesClip } from '../src/lib/clips'
import { SceneBuilder } from '../src/lib/rendering/scene-builder'

const PALETTE = { sky: '#eee', ground: '#ddd', groundLine: '#ccc' } as Parameters<
  ReturnType<SceneBuilder['build']>['paint']
>[0]

/** A scene that contains only a plane of 20 m x 20 m. */
function clipWithGround(quat: number[]): PosesClip {
  const ground: Geom = {
    type: 'plane',
    body: -1,
    size: [10, 10, 1],
    pos: [0, 0, 0],
    quat,
    rgba: [0.8, 0.9, 0.8, 1],
    mesh: null,
    hfield: null,
  }
  const camera = { distance: 5, azimuth_deg: 90, elevation_deg: -20, lookat: [0, 0, 1], tracks: 0 }
  const scene = { bodies: [], geoms: [ground], meshes: [], hfields: [], camera, ground_z: 0, extent: 1 }
  const poses = { numFrames: 1, numBodies: 0, fps: 20, values: new Float32Array() }
  return { kind: 'poses', clip: {} as PosesClip['clip'], poses, scene: scene as unknown as Scene }
}

/** The extent of the ground in x when the camera looks at x = 100 m. */
function groundAt100m(quat: number[]): [number, number] {
  const built = new SceneBuilder(8).build(clipWithGround(quat))
  built.paint(PALETTE)
  built.follow({ target: [100, 0, 1], distance: 5 } as Parameters<typeof built.follow>[0])
  built.root.updateMatrixWorld()
  const box = new Box3().setFromObject(built.ground!)
  return [box.min.x, box.max.x]
}

describe('the ground', () => {
  it('reaches to the horizon wherever a body goes, whatever the size of its plane', () => {
    const [left, right] = groundAt100m([1, 0, 0, 0])
    expect(left).toBeLessThan(70)
    expect(right).toBeGreaterThan(130)
  })

  it('stays in place if it is a slope', () => {
    const [left, right] = groundAt100m([Math.cos(0.1), 0, Math.sin(0.1), 0])
    expect(left + right).toBeCloseTo(0)
  })
})
