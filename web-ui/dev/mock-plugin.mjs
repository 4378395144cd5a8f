/**
 * Serve the mock service's routes while `vite dev` runs.
 *
 * @returns {import('vite').Plugin}
 */
export function mockPlugin() {
  return {
    name: 'mock-service',
    apply: 'serve',
    async configureServer(server) {
      const { Mock } = await import('./mock.mjs')
      const mock = new Mock({ video: process.env.MOCK_VIDEO ?? null })
      server.middlewares.use(async (request, response, next) => {
        if (!(await mock.handle(request, response))) next()
      })
    },
  }
}
