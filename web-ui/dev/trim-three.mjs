import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** The shaders of the page's materials: Lambert, the ground's shadow, and the depth map of the sun. */
const SHADERS = ['meshlambert', 'shadow', 'depth']

/** Modules that the renderer imports, and replacements for a page without VR and reflections. */
const UNUSED_MODULES = {
  'renderers/webxr/WebXRManager.js': `export class WebXRManager {
    enabled = false
    isPresenting = false
    addEventListener() {}
    removeEventListener() {}
    setAnimationLoop() {}
    getEnvironmentBlendMode() {}
    dispose() {}
  }`,
  'extras/PMREMGenerator.js': 'export class PMREMGenerator {}',
  'renderers/shaders/DFGLUTData.js': 'export const getDFGLUT = () => null',
}

const SOURCE = fileURLToPath(new URL('../node_modules/three/src/', import.meta.url))

/**
 * Leave out the parts of three.js that WebGLRenderer imports but clips never use, a seventh of its size.
 *
 * @returns {import('vite').Plugin}
 */
export function trimThree() {
  const chunks = includedChunks()
  return {
    name: 'trim-three',
    apply: 'build',
    config: () => ({ resolve: { alias: [{ find: /^three$/, replacement: `${SOURCE}Three.js` }] } }),
    load(id) {
      const [, path] = id.split('/three/src/')
      if (path === undefined) return null
      if (path in UNUSED_MODULES) return UNUSED_MODULES[path]
      const [, kind, name] = /^renderers\/shaders\/(ShaderLib|ShaderChunk)\/(\w+)\.glsl\.js$/.exec(path) ?? []
      if (kind === 'ShaderLib' && !SHADERS.includes(name)) return "export const vertex = '', fragment = ''"
      if (kind === 'ShaderChunk' && !chunks.has(name)) return "export default ''"
      return null
    },
    transform: (code, id) => (id.includes('/three/src/') ? minifyShaders(code) : null),
  }
}

/** Remove comments and indentation from shaders, as three.js's own build does. */
function minifyShaders(code) {
  return code.replace(/\/\* glsl \*\/\s*`([^`]*)`/g, (_, shader) =>
    JSON.stringify(shader.replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '').replace(/\s*\n\s*/g, '\n')),
  )
}

/** Return the names of all chunks that the shaders include, and those that are added to each program. */
function includedChunks() {
  const chunks = new Set()
  const visit = (path) => {
    const text = readFileSync(SOURCE + path, 'utf8')
    for (const [, included, added] of text.matchAll(/#include <(\w+)>|ShaderChunk\[ '(\w+)' \]/g)) {
      const name = included ?? added
      if (chunks.has(name)) continue
      chunks.add(name)
      visit(`renderers/shaders/ShaderChunk/${name}.glsl.js`)
    }
  }
  for (const name of SHADERS) visit(`renderers/shaders/ShaderLib/${name}.glsl.js`)
  visit('renderers/webgl/WebGLProgram.js')
  return chunks
}
