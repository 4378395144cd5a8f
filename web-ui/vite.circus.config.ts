import { defineConfig, mergeConfig } from 'vite'

import { inlineFiles } from './dev/inline-files.mjs'
import page from './vite.config.ts'

/** The page of `rl-teacher circus`: one HTML file, which works without a server. */
export default mergeConfig(
  page,
  defineConfig({
    plugins: [inlineFiles()],
    build: {
      emptyOutDir: false,
      manifest: false,
      modulePreload: false,
      rolldownOptions: { input: 'circus.html', output: { codeSplitting: false } },
    },
  }),
)
