// Fails where what a labeler loads, or all of the page, is too large, or where it names an address
// outside. Takes the list of chunks away afterwards: nothing but this reads it.

import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const STATIC = fileURLToPath(new URL('../../src/rl_teacher/web/static', import.meta.url))
const MOST_BYTES = 200 * 1024
const MOST_BYTES_IN_ALL = 250 * 1024
const ENTRY = 'index.html'
/** The pages that owners alone get to see; what only they lead to, no labeler loads. */
const OWNERS = ['src/pages/Experiment.svelte', 'src/pages/Play.svelte']

/** Names of XML vocabularies: never fetched. */
const NAMES = ['http://www.w3.org/2000/svg', 'http://www.w3.org/1999/xhtml', 'http://www.w3.org/1999/xlink',
  'http://www.w3.org/XML/1998/namespace', 'http://www.w3.org/2000/xmlns/', 'http://www.w3.org/1998/Math/MathML']

const LIST = join(STATIC, 'chunks.json')
const chunks = JSON.parse(readFileSync(LIST, 'utf8'))
rmSync(LIST)

const forLabelers = new Set([ENTRY])
const visited = new Set(OWNERS)
visit(ENTRY)

function visit(key) {
  if (visited.has(key)) return
  visited.add(key)
  const { file, css = [], assets = [], imports = [], dynamicImports = [] } = chunks[key]
  for (const name of [file, ...css, ...assets]) forLabelers.add(name)
  for (const name of [...imports, ...dynamicImports]) visit(name)
}

const files = readdirSync(STATIC, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name))

let total = 0
let totalForLabelers = 0
const outside = new Set()
for (const file of files) {
  const content = readFileSync(file)
  const size = gzipSync(content, { level: 9 }).length
  const name = relative(STATIC, file).replaceAll('\\', '/')
  const isForLabelers = forLabelers.has(name)
  total += size
  if (isForLabelers) totalForLabelers += size
  console.log(`${String(size).padStart(8)} B gzip  ${name}${isForLabelers ? '' : '  (owners only)'}`)
  for (const [address] of content.toString('utf8').matchAll(/(?:https?:|wss?:)?\/\/[a-z0-9-]+\.[a-z]{2,}[^\s"'`)\\]*/gi)) {
    if (!NAMES.includes(address)) outside.add(address)
  }
}
console.log(`${String(totalForLabelers).padStart(8)} B gzip  for labelers, of at most ${MOST_BYTES}`)
console.log(`${String(total).padStart(8)} B gzip  in all, of at most ${MOST_BYTES_IN_ALL}`)
if (outside.size > 0) console.error('Addresses outside:', [...outside].join(' '))
const isTooLarge = totalForLabelers > MOST_BYTES || total > MOST_BYTES_IN_ALL
process.exitCode = isTooLarge || outside.size > 0 ? 1 : 0
