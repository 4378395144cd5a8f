// Generates src/lib/api-types.ts from the service's OpenAPI document on standard input.
// Usage: python -m rl_teacher.web.openapi | node dev/api-types.mjs [--check]
// With --check it writes nothing and fails if the file is out of date.

import { readFileSync, writeFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

import openapiTS, { astToString, COMMENT_HEADER } from 'openapi-typescript'

const TARGET = fileURLToPath(new URL('../src/lib/api-types.ts', import.meta.url))

/** Keys of prose: titles repeat the names, and an edited description must not outdate the types. */
const PROSE = ['title', 'description']

function withoutProse(schema) {
  if (Array.isArray(schema)) return schema.map(withoutProse)
  if (schema === null || typeof schema !== 'object') return schema
  // A property may itself be named "title": then its value is a schema, not a string.
  const entries = Object.entries(schema).filter(([key, value]) => !PROSE.includes(key) || typeof value !== 'string')
  return Object.fromEntries(entries.map(([key, value]) => [key, withoutProse(value)]))
}

const { openapi, info, components } = JSON.parse(await text(process.stdin))
// The page calls few routes and names them itself, so the types of the paths are left out.
const document = { openapi, info, paths: {}, components: { schemas: withoutProse(components.schemas) } }
const nodes = await openapiTS(document, {
  // A request may omit a field that has a default.
  defaultNonNullable: false,
  rootTypes: true,
  rootTypesNoSchemaPrefix: true,
  rootTypesKeepCasing: true,
})
const generated = COMMENT_HEADER + astToString(nodes)

if (!process.argv.includes('--check')) writeFileSync(TARGET, generated)
else if (readFileSync(TARGET, 'utf8') !== generated) {
  console.error('src/lib/api-types.ts does not match the API; run `make api-types`.')
  process.exitCode = 1
}
