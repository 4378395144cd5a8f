import { svelte } from '@sveltejs/vite-plugin-svelte'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

import { mockPlugin } from './dev/mock-plugin.mjs'

/** Svelte's errors name a page that explains them; the built page names no address outside. */
function withoutAddresses(): Plugin {
  return {
    name: 'without-addresses',
    apply: 'build',
    transform: (code, id) =>
      id.includes('/svelte/src/internal/') ? code.replaceAll('https://svelte.dev/e/', '') : null,
  }
}

export default defineConfig({
  plugins: [svelte(), withoutAddresses(), mockPlugin()],
  resolve: process.env.VITEST ? { conditions: ['browser'] } : {},
  build: {
    outDir: '../src/rl_teacher/web/static',
    emptyOutDir: true,
    manifest: 'chunks.json',
    target: 'es2022',
    // Note: an inlined file would be a data: address, which the content security policy refuses.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700,
  },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
})
