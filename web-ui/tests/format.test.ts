import { expect, it } from 'vitest'

import { RequestRejected, ServerUnreachable, SignedOut, Throttled } from '../src/lib/api'
import { failureText, localTime, shareOf } from '../src/lib/format'

it('names the cause of a failure', () => {
  const rejection = (status: number) =>
    new RequestRejected({ type: '', title: 'Forbidden', status, detail: '' })
  const errors = [
    rejection(404),
    rejection(403),
    new SignedOut(),
    new Throttled(),
    new ServerUnreachable(),
  ]
  const texts = [
    'Experiment not found',
    'Forbidden',
    'Signed out',
    'Too many requests',
    'Server unreachable',
  ]
  expect(errors.map(failureText)).toEqual(texts)
})

it('gives the day of a moment that is not today', () => {
  const moment = new Date(2026, 10, 25, 14, 2)
  const texts = [25, 26].map((day) => localTime(moment.toISOString(), new Date(2026, 10, day, 23)))
  expect(texts).toEqual(['14:02', '25 Nov, 14:02'])
})

it('adds the interval to a share where it is known', () => {
  const metrics = { accuracy: 0.874, accuracy_low: 0.75, accuracy_high: 0.94, other: 0.5 }
  expect(shareOf(metrics, 'accuracy')).toBe('87 % (75 to 94)')
  expect(shareOf(metrics, 'other')).toBe('50 %')
  expect(shareOf(metrics, 'missing')).toBe(null)
})
