/** Draws one or two clips with one WebGL renderer: a scissored viewport each on one canvas. */

import {
  BasicShadowMap,
  BoxGeometry,
  BufferAttribute,
  BufferGeometry,
  CapsuleGeometry,
  Color,
  CylinderGeometry,
  DirectionalLight,
  DoubleSide,
  FrontSide,
  Group,
  HemisphereLight,
  Mesh,
  MeshLambertMaterial,
  PCFShadowMap,
  PerspectiveCamera,
  PlaneGeometry,
  Scene,
  SphereGeometry,
  SRGBColorSpace,
  Vector3,
  WebGLRenderer,
  type Material,
} from 'three'

import {
  commonHeight,
  FIELD_OF_VIEW_DEG,
  targetAt,
  viewOf,
  type Orbit,
  type Vector,
} from './camera'
import type { PosesClip } from '../clips'
import { positionAt, type Clock } from '../clock'
import { GroundMaterial } from './ground-material'
import { poseAt } from '../poses'
import type { Geom, SceneFile } from '../types'
import {
  floatsOf,
  indicesOf,
  niceLength,
  type ClipRenderer,
  type Palette,
  type Pane,
} from './renderer'

/** Pixels per CSS pixel, from fine to coarse: where pictures come slowly, a coarser one is taken. */
const PIXEL_RATIOS = [2, 1.5, 1, 0.75, 0.6]
/** Between two pictures: slower than 25 a second; and what is a pause, not slowness. */
const SLOW_MS = 40
const PAUSE_MS = 250
const JUDGED_DRAWS = 20
const SHADOW_MAP = 512
/** Straight pieces of a round thing's outline, where graphics hardware draws and where none does. */
const SMOOTH = 20
const COARSE = 12
const FARTHEST = 60
const INFINITE_PLANE = 40
const QUARTER_TURN = Math.PI / 2

/** Three's canvas cannot be had: no WebGL, or the driver is refused. */
export class NoWebGl extends Error {}

/** The meshes of one clip's scene, and what moves them. */
interface Side {
  clip: PosesClip
  scene: Scene
  bodies: Group[]
  ground: Mesh | null
  light: DirectionalLight
}

export class ThreeRenderer implements ClipRenderer {
  readonly kind = 'webgl'
  readonly isPlain: boolean
  #renderer: WebGLRenderer
  #camera = new PerspectiveCamera(FIELD_OF_VIEW_DEG, 1, 0.01, 1000)
  #parts: Parts
  #sides: (Side | null)[] = []
  #panes: readonly Pane[] = []
  #height = 0
  #size: [number, number] = [1, 1]
  #laidOut = ''
  #drawn = ''
  #ratio: number
  #slowDraws = 0
  #lastDraw_ms = 0
  #palette: Palette | null = null
  #pose = new Float32Array(7)

  /** @throws NoWebGl */
  constructor(
    canvas: HTMLCanvasElement,
    readonly orbit: Orbit,
  ) {
    this.isPlain = isSoftware()
    try {
      this.#renderer = new WebGLRenderer({ canvas, antialias: !this.isPlain, alpha: true })
    } catch (error) {
      throw new NoWebGl('WebGL is not available.', { cause: error })
    }
    this.#parts = new Parts(this.isPlain ? COARSE : SMOOTH)
    this.#ratio = Math.min(devicePixelRatio, this.isPlain ? 1 : PIXEL_RATIOS[0]!)
    this.#camera.up.set(0, 0, 1)
    this.#renderer.shadowMap.enabled = true
    // Note: soft edges cost the processor as much as all the rest of the picture.
    this.#renderer.shadowMap.type = this.isPlain ? BasicShadowMap : PCFShadowMap
    this.#renderer.setScissorTest(true)
  }

  show(clips: readonly (PosesClip | null)[]): void {
    const shown = clips.filter((clip) => clip !== null)
    this.#height =
      shown.length > 0 ? commonHeight(shown[0]!.scene, shown.map(({ poses }) => poses)) : 0
    this.#sides = clips.map((clip, i) => this.#sideFor(clip, this.#sides[i] ?? null))
    this.invalidate()
  }

  /** Clips of one environment differ in their poses only: the meshes of the last ones stay. */
  #sideFor(clip: PosesClip | null, last: Side | null): Side | null {
    if (clip === null) return null
    if (last?.clip.clip.scene_url === clip.clip.scene_url) return { ...last, clip }
    const side = this.#parts.build(clip)
    if (this.#palette !== null) paintSide(side, this.#palette)
    return side
  }

  layOut(width: number, height: number, panes: readonly Pane[]): void {
    const described = JSON.stringify([width, height, panes, this.#ratio])
    if (described === this.#laidOut) return
    this.#laidOut = described
    this.#size = [width, height]
    this.#panes = panes
    this.#renderer.setPixelRatio(this.#ratio)
    this.#renderer.setSize(width, height, false)
    this.invalidate()
  }

  paint(palette: Palette): void {
    this.#palette = palette
    for (const side of this.#sides) if (side !== null) paintSide(side, palette)
    this.invalidate()
  }

  invalidate(): void {
    this.#drawn = ''
  }

  draw(clock: Clock): boolean {
    const wanted = this.#describe(clock)
    if (wanted === this.#drawn || this.#renderer.getContext().isContextLost()) return false
    this.#drawn = wanted
    for (const [i, side] of this.#sides.entries()) {
      const pane = this.#panes[i]
      if (pane !== undefined) this.#drawPane(side, pane, clock)
    }
    this.#judge(performance.now())
    return true
  }

  /** All that the picture depends on. */
  #describe(clock: Clock): string {
    const { azimuth_deg, elevation_deg, zoom } = this.orbit
    const positions = this.#sides.map((side) => side && positionAt(side.clip.clip, clock.time_s))
    return [...positions, azimuth_deg, elevation_deg, zoom].join()
  }

  #drawPane(side: Side | null, pane: Pane, clock: Clock): void {
    const bottom = this.#size[1] - pane.y - pane.height
    this.#renderer.setViewport(pane.x, bottom, pane.width, pane.height)
    this.#renderer.setScissor(pane.x, bottom, pane.width, pane.height)
    if (side === null) return this.#renderer.clear()
    const position = positionAt(side.clip.clip, clock.time_s)
    this.#place(side, position)
    this.#aim(side, position, pane)
    this.#renderer.render(side.scene, this.#camera)
  }

  #place(side: Side, position: number): void {
    for (const [body, group] of side.bodies.entries()) {
      poseAt(side.clip.poses, body, position, this.#pose)
      const [x, y, z, w, i, j, k] = this.#pose
      group.position.set(x!, y!, z!)
      group.quaternion.set(i!, j!, k!, w!)
    }
  }

  #aim(side: Side, position: number, pane: Pane): void {
    const { scene, poses } = side.clip
    const target = targetAt(scene, poses, position, this.#height)
    const view = viewOf(scene.camera, this.orbit, target, pane.width / pane.height)
    this.#camera.aspect = pane.width / pane.height
    this.#camera.near = view.distance / 100
    this.#camera.far = view.distance * FARTHEST
    this.#camera.position.set(...view.eye)
    this.#camera.lookAt(...view.target)
    this.#camera.updateProjectionMatrix()
    followWithLight(side.light, target, reachOf(scene))
    if (side.ground !== null) spread(side.ground, view.target, view.distance)
  }

  locate(pane: number, point: Vector): [number, number] | null {
    const side = this.#sides[pane]
    const place = this.#panes[pane]
    if (!side || place === undefined) return null
    this.#aim(side, this.#lastPosition(pane), place)
    this.#camera.updateMatrixWorld()
    const projected = new Vector3(...point).project(this.#camera)
    return [
      place.x + ((projected.x + 1) / 2) * place.width,
      place.y + ((1 - projected.y) / 2) * place.height,
    ]
  }

  #lastPosition(pane: number): number {
    return Number(this.#drawn.split(',')[pane] ?? 0) || 0
  }

  /** Takes a coarser picture where most of the last ones came slowly. */
  #judge(now_ms: number): void {
    // Note: the graphics driver draws later, so only the pace of pictures tells what they cost.
    const took_ms = now_ms - this.#lastDraw_ms
    this.#lastDraw_ms = now_ms
    if (took_ms > PAUSE_MS) return
    this.#slowDraws = Math.max(0, this.#slowDraws + (took_ms > SLOW_MS ? 1 : -2))
    const coarser = PIXEL_RATIOS.find((ratio) => ratio < this.#ratio)
    if (this.#slowDraws < JUDGED_DRAWS || coarser === undefined) return
    this.#slowDraws = 0
    this.#ratio = coarser
    this.layOut(...this.#size, this.#panes)
  }

  dispose(): void {
    this.#parts.dispose()
    this.#renderer.dispose()
  }
}

/** Geometries and materials, each made once and shared by both sides. */
class Parts {
  #geometries = new Map<string, BufferGeometry>()
  #materials = new Map<string, Material>()

  constructor(readonly pieces: number) {}

  build(clip: PosesClip): Side {
    const { scene: file } = clip
    const scene = new Scene()
    const bodies = file.bodies.map(() => new Group())
    const world = new Group()
    scene.add(world, ...bodies)
    let ground: Mesh | null = null
    for (const geom of file.geoms) {
      const mesh = this.#meshOf(geom, file, clip.clip.scene_url ?? '')
      ;(bodies[geom.body] ?? world).add(mesh)
      if (mesh.material instanceof GroundMaterial) ground = mesh
    }
    const light = addLights(scene, reachOf(file))
    return { clip, scene, bodies, ground, light }
  }

  #meshOf(geom: Geom, file: SceneFile, url: string): Mesh {
    const isGround = geom.type === 'plane' && geom.body === -1
    const geometry = this.#geometryOf(geom, file, url)
    const mesh = new Mesh(geometry, isGround ? new GroundMaterial() : this.#materialOf(geom))
    mesh.position.set(geom.pos[0]!, geom.pos[1]!, geom.pos[2]!)
    mesh.quaternion.set(geom.quat[1]!, geom.quat[2]!, geom.quat[3]!, geom.quat[0]!)
    if (geom.type === 'ellipsoid') mesh.scale.set(geom.size[0]!, geom.size[1]!, geom.size[2]!)
    mesh.userData.isInfinite = geom.type === 'plane' && geom.size[0] === 0
    mesh.castShadow = geom.type !== 'plane' && geom.type !== 'hfield'
    mesh.receiveShadow = !mesh.castShadow
    return mesh
  }

  #geometryOf(geom: Geom, file: SceneFile, url: string): BufferGeometry {
    const index = geom.mesh ?? geom.hfield
    const key = index === null ? `${geom.type} ${geom.size.join()}` : `${url} ${geom.type} ${index}`
    let geometry = this.#geometries.get(key)
    if (geometry === undefined) {
      geometry = geometryOf(geom, file, this.pieces)
      this.#geometries.set(key, geometry)
    }
    return geometry
  }

  #materialOf(geom: Geom): Material {
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

/** A geom's surface. MuJoCo gives half sizes and turns round things about z, three.js about y. */
function geometryOf(geom: Geom, file: SceneFile, pieces: number): BufferGeometry {
  const [a, b, c] = geom.size as [number, number, number]
  switch (geom.type) {
    case 'sphere':
      return new SphereGeometry(a, pieces, 0.7 * pieces)
    case 'ellipsoid':
      return new SphereGeometry(1, pieces, 0.7 * pieces)
    case 'capsule':
      return new CapsuleGeometry(a, 2 * b, pieces / 4, pieces).rotateX(QUARTER_TURN)
    case 'cylinder':
      return new CylinderGeometry(a, a, 2 * b, pieces).rotateX(QUARTER_TURN)
    case 'box':
      return new BoxGeometry(2 * a, 2 * b, 2 * c)
    case 'plane':
      return new PlaneGeometry(2 * (a || INFINITE_PLANE), 2 * (b || INFINITE_PLANE))
    case 'mesh':
      return meshGeometry(file, geom.mesh ?? 0)
    case 'hfield':
      return hfieldGeometry(file, geom.hfield ?? 0)
  }
}

function meshGeometry(file: SceneFile, index: number): BufferGeometry {
  const { vertices, faces } = file.meshes[index]!
  const geometry = new BufferGeometry()
  geometry.setAttribute('position', new BufferAttribute(floatsOf(vertices), 3))
  geometry.setIndex(new BufferAttribute(indicesOf(faces), 1))
  geometry.computeVertexNormals()
  return geometry
}

function hfieldGeometry(file: SceneFile, index: number): BufferGeometry {
  const { rows, columns, size, data } = file.hfields[index]!
  const heights = floatsOf(data)
  const geometry = new PlaneGeometry(2 * size[0]!, 2 * size[1]!, columns - 1, rows - 1)
  const position = geometry.getAttribute('position')
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      // Note: three's plane begins at the greatest y, MuJoCo's field at the smallest.
      const vertex = (rows - 1 - row) * columns + column
      position.setZ(vertex, heights[row * columns + column]! * size[2]!)
    }
  }
  geometry.computeVertexNormals()
  return geometry
}

function addLights(scene: Scene, reach: number): DirectionalLight {
  const sun = new DirectionalLight(0xffffff, 2.1)
  sun.castShadow = true
  sun.shadow.mapSize.set(SHADOW_MAP, SHADOW_MAP)
  sun.shadow.radius = 3
  sun.shadow.normalBias = reach / 100
  const eye = sun.shadow.camera
  eye.left = eye.bottom = -reach
  eye.right = eye.top = reach
  eye.near = reach / 10
  eye.far = reach * 8
  scene.add(sun, sun.target, new HemisphereLight(0xffffff, 0x8b8f98, 1.7))
  return sun
}

/** How far from the target things may cast a shadow, in metres. */
const reachOf = (scene: SceneFile): number => Math.max(scene.camera.distance * 0.6, 0.1)

function followWithLight(light: DirectionalLight, target: Vector, reach: number): void {
  light.target.position.set(...target)
  light.position.set(target[0] - 1.2 * reach, target[1] - 1.6 * reach, target[2] + 3.4 * reach)
}

/** The ground fades around what is looked at; one without an end goes along. */
function spread(ground: Mesh, target: Vector, distance: number): void {
  const material = ground.material as GroundMaterial
  material.around(target, distance)
  if (!ground.userData.isInfinite) return
  const cell = 2 * material.cell
  const scale = Math.max(1, distance / 8)
  ground.scale.set(scale, scale, 1)
  ground.position.x = Math.round(target[0] / cell) * cell
  ground.position.y = Math.round(target[1] / cell) * cell
}

function paintSide(side: Side, palette: Palette): void {
  side.scene.background = new Color(palette.sky)
  if (side.ground === null) return
  const cell = niceLength(side.clip.scene.camera.distance / 5)
  ;(side.ground.material as GroundMaterial).paint(palette, cell)
}

/** Whether the processor draws: then edges are left rough and hard, so that it keeps up. */
function isSoftware(): boolean {
  const probe = document.createElement('canvas').getContext('webgl2')
  if (probe === null) return false
  const details = probe.getExtension('WEBGL_debug_renderer_info')
  const name = details === null ? '' : String(probe.getParameter(details.UNMASKED_RENDERER_WEBGL))
  probe.getExtension('WEBGL_lose_context')?.loseContext()
  return /swiftshader|llvmpipe|software|basic render/i.test(name)
}
