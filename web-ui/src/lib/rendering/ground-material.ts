/** The ground: calm squares that show how far a body moves, fading out towards the horizon. */

import { Color, ShadowMaterial, Vector4 } from 'three'

import type { Vector } from './camera'
import type { Palette } from './renderer'

/** How bright the ground is in the light, and where a body keeps the sun off it. */
const LIT = 1.12
const SHADED = 0.54

const DECLARATIONS = `
varying vec3 vWorld;
uniform vec3 litColour;
uniform vec3 litLineColour;
uniform float shade;
uniform vec3 skyColour;
uniform vec4 around;
uniform float cell;
`

/** A checker that turns into its mean where squares get smaller than pixels; then shadow, and sky. */
const COLOUR = `
vec2 place = vWorld.xy / cell;
vec2 width = max(fwidth(place), 1e-4);
vec2 edge = 2.0 * (abs(fract((place - 0.5 * width) * 0.5) - 0.5)
                 - abs(fract((place + 0.5 * width) * 0.5) - 0.5)) / width;
vec3 ground = mix(litColour, litLineColour, 0.5 - 0.5 * edge.x * edge.y);
ground *= mix(shade, 1.0, getShadowMask());
float away = distance(vWorld, around.xyz) / around.w;
gl_FragColor = vec4(mix(ground, skyColour, smoothstep(1.1, 3.4, away)), 1.0);
`

/**
 * The ground covers most of the picture, so its shader decides the pace where the processor draws:
 * it is flat and evenly lit, so light and colour space are worked out once and not for every pixel.
 */
export class GroundMaterial extends ShadowMaterial {
  #cell = { value: 1 }
  #lit = new Color()
  #litLine = new Color()
  #shade = { value: 1 }
  #sky = new Color()
  #around = new Vector4()

  constructor() {
    super({ transparent: false })
    this.onBeforeCompile = (shader) => {
      shader.uniforms.litColour = { value: this.#lit }
      shader.uniforms.litLineColour = { value: this.#litLine }
      shader.uniforms.shade = this.#shade
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
        .replace(/gl_FragColor = .*;/, COLOUR)
        .replace('#include <colorspace_fragment>', '')
    }
  }

  paint(palette: Palette, cell: number): void {
    paintAs(this.#lit, palette.ground, LIT)
    paintAs(this.#litLine, palette.groundLine, LIT)
    // Note: an sRGB value is about the light to the power of 1 / 2.2.
    this.#shade.value = (SHADED / LIT) ** (1 / 2.2)
    paintAs(this.#sky, palette.sky, 1)
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

/** A colour of the page as the screen takes it, under so much light. */
function paintAs(colour: Color, page: string, light: number): void {
  colour.set(page).multiplyScalar(light).convertLinearToSRGB()
}
