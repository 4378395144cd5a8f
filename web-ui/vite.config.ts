import { svelte } from '@sveltejs/vite-plugin-svelte'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

import { trimThree } from './dev/trim-three.mjs'

/** Remove the documentation links from Svelte's errors: the built page refers to no other host. */
function withoutExternalUrls(): Plugin {
  return {
    name: 'without-external-urls',
    apply: 'build',
    transform: (code, id) =>
      id.includes('/svelte/src/internal/') ? code.replaceAll('https://svelte.dev/e/', '') : null,
  }
}

export default defineConfig({
  plugins: [svelte(), withoutExternalUrls(), trimThree()],
  resolve: process.env.VITEST ? { conditions: ['browser'] } : {},
  build: {
    outDir: '../src/rl_teacher/web/static',
    emptyOutDir: true,
    manifest: 'chunks.json',
    target: 'es2022',
    // An inlined file would be a data: URL, which the content security policy blocks.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700,
  },
  // `rl-teacher serve` answers requests and links with a token or a one-time code.
  server: { proxy: { '^/api/|[?&](token|code)=': process.env.RL_TEACHER_URL ?? 'http://127.0.0.1:8765' } },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
})
