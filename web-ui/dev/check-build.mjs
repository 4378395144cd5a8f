// Fails if the built page, the part that labelers load, or the page of the circus is too large or refers to other
// hosts.
// Removes the list of chunks, which nothing else reads.

import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const STATIC = fileURLToPath(new URL('../../src/rl_teacher/web/static', import.meta.url))
const MAX_LABELER_BYTES = 200 * 1024
const MAX_TOTAL_BYTES = 250 * 1024
const MAX_CIRCUS_BYTES = 200 * 1024
const ENTRY = 'index.html'
/** A file of its own, with a copy of the clip player; the service never sends it. */
const CIRCUS = 'circus.html'
/** Pages for owners only; labelers load nothing that only these import. */
const OWNER_PAGES = [
  'src/pages/Experiment.svelte',
  'src/pages/Play.svelte',
  'src/label/RunEnd.svelte',
  'src/experiments/ManageDialog.svelte',
]

/** XML namespaces, which are never fetched. */
const XML_NAMESPACES = ['http://www.w3.org/2000/svg', 'http://www.w3.org/1999/xhtml', 'http://www.w3.org/1999/xlink',
  'http://www.w3.org/XML/1998/namespace', 'http://www.w3.org/2000/xmlns/', 'http://www.w3.org/1998/Math/MathML']

const LIST = join(STATIC, 'chunks.json')
const chunks = JSON.parse(readFileSync(LIST, 'utf8'))
rmSync(LIST)

const forLabelers = new Set([ENTRY])
const visited = new Set(OWNER_PAGES)
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
let totalOfCircus = 0
const externalUrls = new Set()
for (const file of files) {
  const content = readFileSync(file)
  const size = gzipSync(content, { level: 9 }).length
  const name = relative(STATIC, file).replaceAll('\\', '/')
  const isForLabelers = forLabelers.has(name)
  if (name === CIRCUS) totalOfCircus = size
  else total += size
  if (isForLabelers) totalForLabelers += size
  console.log(`${String(size).padStart(8)} B gzip  ${name}${isForLabelers || name === CIRCUS ? '' : '  (owners only)'}`)
  for (const [address] of content.toString('utf8').matchAll(/(?:https?:|wss?:)?\/\/[a-z0-9-]+\.[a-z]{2,}[^\s"'`)\\]*/gi)) {
    if (!XML_NAMESPACES.includes(address)) externalUrls.add(address)
  }
}
console.log(`${String(totalForLabelers).padStart(8)} B gzip  for labelers, of at most ${MAX_LABELER_BYTES}`)
console.log(`${String(total).padStart(8)} B gzip  in total, of at most ${MAX_TOTAL_BYTES}`)
console.log(`${String(totalOfCircus).padStart(8)} B gzip  for the circus, of at most ${MAX_CIRCUS_BYTES}`)
if (externalUrls.size > 0) console.error('External URLs:', [...externalUrls].join(' '))
const isTooLarge =
  totalForLabelers > MAX_LABELER_BYTES || total > MAX_TOTAL_BYTES || totalOfCircus > MAX_CIRCUS_BYTES
process.exitCode = isTooLarge || externalUrls.size > 0 ? 1 : 0
