import { expect, it } from 'vitest'

import { RequestRejected, ServerUnreachable, SignedOut } from '../src/lib/api'
import { failureText } from '../src/lib/format'

it('names the cause of a failure', () => {
  const rejection = (status: number) =>
    new RequestRejected({ type: '', title: 'Forbidden', status, detail: '' })
  const errors = [rejection(404), rejection(403), new SignedOut(), new ServerUnreachable()]
  const texts = ['Experiment not found', 'Forbidden', 'Signed out', 'Server unreachable']
  expect(errors.map(failureText)).toEqual(texts)
})
