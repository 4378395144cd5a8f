/** The ground: a faint checkerboard that shows how far a body moves and fades at the horizon. */

import { Color, ShadowMaterial, Vector4 } from 'three'

import type { Vector } from './camera'
import type { Palette } from './renderer'

/** Brightness of the ground in the light and in the shadow. */
const LIT = 1.12
const SHADED = 0.54

const DECLARATIONS = `
varying vec3 vWorld;
uniform vec3 lightSquare;
uniform vec3 darkSquare;
uniform float shade;
uniform vec3 skyColour;
uniform vec4 fade;
uniform float cell;
`

/**
 * A checkerboard, filtered over each pixel's footprint so that it turns into its mean where squares
 * are smaller than pixels; then the shadow and the fade into the sky.
 */
const COLOUR = `
vec2 place = vWorld.xy / cell;
vec2 width = max(fwidth(place), 1e-4);
vec2 edge = 2.0 * (abs(fract((place - 0.5 * width) * 0.5) - 0.5)
                 - abs(fract((place + 0.5 * width) * 0.5) - 0.5)) / width;
vec3 ground = mix(lightSquare, darkSquare, 0.5 - 0.5 * edge.x * edge.y);
ground *= mix(shade, 1.0, getShadowMask());
float away = distance(vWorld, fade.xyz) / fade.w;
gl_FragColor = vec4(mix(ground, skyColour, smoothstep(1.1, 3.4, away)), 1.0);
`

/**
 * Material of the ground.
 *
 * The ground covers most of the frame, so in software rendering its shader decides the frame rate.
 * The ground is flat and evenly lit: light and colour space are computed once, not for every pixel.
 */
export class GroundMaterial extends ShadowMaterial {
  #cell = { value: 1 }
  #lightSquare = new Color()
  #darkSquare = new Color()
  #shade = { value: 1 }
  #sky = new Color()
  #fade = new Vector4()

  constructor() {
    super({ transparent: false })
    this.onBeforeCompile = (shader) => {
      shader.uniforms.lightSquare = { value: this.#lightSquare }
      shader.uniforms.darkSquare = { value: this.#darkSquare }
      shader.uniforms.shade = this.#shade
      shader.uniforms.skyColour = { value: this.#sky }
      shader.uniforms.fade = { value: this.#fade }
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

  /** @param cell side of a square, in metres. */
  paint(palette: Palette, cell: number): void {
    setScreenColour(this.#lightSquare, palette.ground, LIT)
    setScreenColour(this.#darkSquare, palette.groundLine, LIT)
    // The shadow multiplies an sRGB value, which is roughly light to the power of 1 / 2.2.
    this.#shade.value = (SHADED / LIT) ** (1 / 2.2)
    setScreenColour(this.#sky, palette.sky, 1)
    this.#cell.value = cell
  }

  /** Set where the ground is clearest and the distance over which it fades. */
  fadeAround(target: Vector, distance: number): void {
    this.#fade.set(target[0], target[1], target[2], distance)
  }

  /** The side of a square, in metres. */
  get cell(): number {
    return this.#cell.value
  }
}

/** Set a colour to the sRGB value of a CSS colour under the given light. */
function setScreenColour(colour: Color, css: string, light: number): void {
  colour.set(css).multiplyScalar(light).convertLinearToSRGB()
}
