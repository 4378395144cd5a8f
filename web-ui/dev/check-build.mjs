// Fails where the built page is too large, or names an address outside.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const STATIC = fileURLToPath(new URL('../../src/rl_teacher/web/static', import.meta.url))
const MOST_BYTES = 250 * 1024

/** Names of XML vocabularies: never fetched. */
const NAMES = ['http://www.w3.org/2000/svg', 'http://www.w3.org/1999/xhtml', 'http://www.w3.org/1999/xlink',
  'http://www.w3.org/XML/1998/namespace', 'http://www.w3.org/2000/xmlns/', 'http://www.w3.org/1998/Math/MathML']

const files = readdirSync(STATIC, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name))

let total = 0
const outside = new Set()
for (const file of files) {
  const content = readFileSync(file)
  const size = gzipSync(content, { level: 9 }).length
  total += size
  console.log(`${String(size).padStart(8)} B gzip  ${file.slice(STATIC.length + 1)}`)
  for (const [address] of content.toString('utf8').matchAll(/(?:https?:|wss?:)?\/\/[a-z0-9-]+\.[a-z]{2,}[^\s"'`)\\]*/gi)) {
    if (!NAMES.includes(address)) outside.add(address)
  }
}
console.log(`${String(total).padStart(8)} B gzip  in all, of at most ${MOST_BYTES}`)
if (outside.size > 0) console.error('Addresses outside:', [...outside].join(' '))
process.exitCode = total > MOST_BYTES || outside.size > 0 ? 1 : 0
