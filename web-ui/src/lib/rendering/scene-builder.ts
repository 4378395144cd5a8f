/** three.js scenes of clips: one group per body, a ground and a sun with a shadow. */

import {
  Color,
  DirectionalLight,
  DoubleSide,
  FrontSide,
  Group,
  HemisphereLight,
  Mesh,
  MeshLambertMaterial,
  Scene,
  SRGBColorSpace,
  type BufferGeometry,
  type Material,
} from 'three'

import type { PosesClip } from '../clips'
import type { Geom, Scene as SceneFile } from '../api-types'
import type { CameraView } from './camera'
import { geometryOf } from './geometries'
import { GroundMaterial } from './ground-material'
import { niceLength, type Palette } from './renderer'

const SHADOW_MAP_SIZE = 512

/** A clip's scene and the parts of it that change from frame to frame. */
export class ClipScene {
  constructor(
    readonly clip: PosesClip,
    readonly root: Scene,
    readonly bodies: readonly Group[],
    readonly ground: Mesh | null,
    readonly sun: DirectionalLight,
  ) {}

  /** Return the same meshes moved by another clip of the same environment. */
  withClip(clip: PosesClip): ClipScene {
    return new ClipScene(clip, this.root, this.bodies, this.ground, this.sun)
  }

  paint(palette: Palette): void {
    this.root.background = new Color(palette.sky)
    if (this.ground === null) return
    const cell = niceLength(this.clip.scene.camera.distance / 5)
    ;(this.ground.material as GroundMaterial).paint(palette, cell)
  }

  /** Move the sun and the ground along with what the camera looks at. */
  follow({ target, distance }: CameraView): void {
    const reach = shadowReachOf(this.clip.scene)
    this.sun.target.position.set(...target)
    this.sun.position.set(target[0] - 1.2 * reach, target[1] - 1.6 * reach, target[2] + 3.4 * reach)
    if (this.ground === null) return
    const material = this.ground.material as GroundMaterial
    material.fadeAround(target, distance)
    if (!this.ground.userData.isLevel) return
    // Whole pairs of squares: the checkerboard must not slide with the camera.
    const period = 2 * material.cell
    const scale = Math.max(1, distance / 8)
    this.ground.scale.set(scale, scale, 1)
    this.ground.position.x = Math.round(target[0] / period) * period
    this.ground.position.y = Math.round(target[1] / period) * period
  }
}

/** Builder of scenes that makes each geometry and material once and shares it between clips. */
export class SceneBuilder {
  #geometries = new Map<string, BufferGeometry>()
  #materials = new Map<string, Material>()

  /** @param numSegments around a round body. */
  constructor(readonly numSegments: number) {}

  build(clip: PosesClip): ClipScene {
    const { scene: file } = clip
    const root = new Scene()
    const bodies = file.bodies.map(() => new Group())
    const world = new Group()
    root.add(world, ...bodies)
    let ground: Mesh | null = null
    for (const geom of file.geoms) {
      const mesh = this.#meshOf(geom, file, clip.clip.scene_url ?? '')
      ;(bodies[geom.body] ?? world).add(mesh)
      if (mesh.material instanceof GroundMaterial) ground = mesh
    }
    return new ClipScene(clip, root, bodies, ground, addLights(root, shadowReachOf(file)))
  }

  #meshOf(geom: Geom, file: SceneFile, url: string): Mesh {
    const isGround = geom.type === 'plane' && geom.body === -1
    // Bodies stand on a plane beyond its size, too: in MuJoCo the size is for rendering only.
    const drawn = isGround ? { ...geom, size: [0, 0, 0] } : geom
    const geometry = this.#sharedGeometry(drawn, file, url)
    const mesh = new Mesh(geometry, isGround ? new GroundMaterial() : this.#sharedMaterial(geom))
    mesh.position.set(geom.pos[0]!, geom.pos[1]!, geom.pos[2]!)
    // MuJoCo writes quaternions w x y z, three.js x y z w.
    mesh.quaternion.set(geom.quat[1]!, geom.quat[2]!, geom.quat[3]!, geom.quat[0]!)
    if (geom.type === 'ellipsoid') mesh.scale.set(geom.size[0]!, geom.size[1]!, geom.size[2]!)
    mesh.userData.isLevel = isGround && geom.quat[1] === 0 && geom.quat[2] === 0
    mesh.castShadow = geom.type !== 'plane' && geom.type !== 'hfield'
    mesh.receiveShadow = !mesh.castShadow
    return mesh
  }

  #sharedGeometry(geom: Geom, file: SceneFile, url: string): BufferGeometry {
    const index = geom.mesh ?? geom.hfield
    const key = index === null ? `${geom.type} ${geom.size.join()}` : `${url} ${geom.type} ${index}`
    let geometry = this.#geometries.get(key)
    if (geometry === undefined) {
      geometry = geometryOf(geom, file, this.numSegments)
      this.#geometries.set(key, geometry)
    }
    return geometry
  }

  #sharedMaterial(geom: Geom): Material {
    const isFlat = geom.type === 'mesh' || geom.type === 'hfield'
    const key = `${geom.rgba.join()} ${isFlat}`
    let material = this.#materials.get(key)
    if (material === undefined) {
      const [red, green, blue, alpha] = geom.rgba as [number, number, number, number]
      material = new MeshLambertMaterial({
        color: new Color().setRGB(red, green, blue, SRGBColorSpace),
        flatShading: isFlat,
        transparent: alpha < 1,
        opacity: alpha,
        depthWrite: alpha >= 1,
        side: geom.type === 'mesh' ? DoubleSide : FrontSide,
      })
      this.#materials.set(key, material)
    }
    return material
  }

  dispose(): void {
    for (const geometry of this.#geometries.values()) geometry.dispose()
    for (const material of this.#materials.values()) material.dispose()
  }
}

/** Return the distance from the target within which bodies cast shadows, in metres. */
const shadowReachOf = (scene: SceneFile): number => Math.max(scene.camera.distance * 0.6, 0.1)

/** Add the sky's light and the sun; return the sun. */
function addLights(root: Scene, reach: number): DirectionalLight {
  const sun = new DirectionalLight(0xffffff, 2.1)
  sun.castShadow = true
  sun.shadow.mapSize.set(SHADOW_MAP_SIZE, SHADOW_MAP_SIZE)
  sun.shadow.radius = 3
  sun.shadow.normalBias = reach / 100
  const frustum = sun.shadow.camera
  frustum.left = frustum.bottom = -reach
  frustum.right = frustum.top = reach
  frustum.near = reach / 10
  frustum.far = reach * 8
  root.add(sun, sun.target, new HemisphereLight(0xffffff, 0x8b8f98, 1.7))
  return sun
}
