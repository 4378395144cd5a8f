import { expect, test, vi } from 'vitest'
import { tabOf } from '../src/owner/tabs'

// It reads the address when it is loaded.
vi.mock('../src/lib/router.svelte', () => ({ experimentPath: encodeURIComponent }))

test.each([
  ['', 'overview'],
  ['tab=ranking', 'ranking'],
  ['tab=unknown', 'overview'],
  ['tab=toString', 'overview'],
])('query "%s" names the tab %s', (query, tab) => {
  expect(tabOf(new URLSearchParams(query))).toBe(tab)
})
