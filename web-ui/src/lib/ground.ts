/** The ground: calm squares that show how far a body moves, fading out towards the horizon. */

import { Color, MeshLambertMaterial, Vector4 } from 'three'

import type { Vector } from './camera'
import type { Palette } from './view'

const DECLARATIONS = `
varying vec3 vWorld;
uniform vec3 lineColour;
uniform vec3 skyColour;
uniform vec4 around;
uniform float cell;
`

/** A checker that turns into its mean where squares get smaller than pixels. */
const SQUARES = `
vec2 place = vWorld.xy / cell;
vec2 width = max(fwidth(place), 1e-4);
vec2 edge = 2.0 * (abs(fract((place - 0.5 * width) * 0.5) - 0.5)
                 - abs(fract((place + 0.5 * width) * 0.5) - 0.5)) / width;
diffuseColor.rgb = mix(diffuse, lineColour, 0.5 - 0.5 * edge.x * edge.y);
`

const FADE = `
float away = distance(vWorld, around.xyz) / around.w;
gl_FragColor.rgb = mix(gl_FragColor.rgb, skyColour, smoothstep(1.1, 3.4, away));
`

export class GroundMaterial extends MeshLambertMaterial {
  #cell = { value: 1 }
  #line = new Color()
  #sky = new Color()
  #around = new Vector4()

  constructor() {
    super()
    this.onBeforeCompile = (shader) => {
      shader.uniforms.lineColour = { value: this.#line }
      shader.uniforms.skyColour = { value: this.#sky }
      shader.uniforms.around = { value: this.#around }
      shader.uniforms.cell = this.#cell
      shader.vertexShader = shader.vertexShader
        .replace('#include <common>', '#include <common>\nvarying vec3 vWorld;')
        .replace(
          '#include <begin_vertex>',
          '#include <begin_vertex>\nvWorld = (modelMatrix * vec4(transformed, 1.0)).xyz;',
        )
      shader.fragmentShader = shader.fragmentShader
        .replace('#include <common>', `#include <common>\n${DECLARATIONS}`)
        .replace('#include <color_fragment>', SQUARES)
        .replace('#include <opaque_fragment>', `#include <opaque_fragment>\n${FADE}`)
    }
  }

  paint(palette: Palette, cell: number): void {
    this.color.set(palette.ground)
    this.#line.set(palette.groundLine)
    this.#sky.set(palette.sky)
    this.#cell.value = cell
  }

  /** Where the ground is clearest, and over what length it fades. */
  around(target: Vector, distance: number): void {
    this.#around.set(target[0], target[1], target[2], distance)
  }

  /** The side of a square, in metres. */
  get cell(): number {
    return this.#cell.value
  }
}
