// Serves the built page and the mock service, with the real service's security headers.
// Usage: node dev/serve.mjs [port]

import { createServer } from 'node:http'
import { readFile } from 'node:fs/promises'
import { extname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'

import { Mock } from './mock.mjs'

const STATIC = process.env.MOCK_STATIC ?? fileURLToPath(new URL('../../src/rl_teacher/web/static', import.meta.url))
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }
const POLICY = "default-src 'self'; img-src 'self' blob:; media-src 'self' blob:; worker-src 'self' blob:; " +
  "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"

const mock = new Mock({ video: process.env.MOCK_VIDEO ?? null })

async function page(request, response) {
  const path = normalize(new URL(request.url, 'http://mock').pathname)
  const file = path.startsWith('/assets/') ? path : '/index.html'
  try {
    const content = await readFile(join(STATIC, file))
    response.writeHead(200, {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
      'content-security-policy': POLICY,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    })
    response.end(content)
  } catch {
    response.writeHead(404).end()
  }
}

const port = Number(process.argv[2] ?? 5199)
createServer(async (request, response) => {
  if (!(await mock.handle(request, response))) await page(request, response)
}).listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`))
