import { describe, expect, it } from 'vitest'
import { actionOf } from '../src/lib/keys'
import type { Pressed } from '../src/lib/keys'

const pressed = (key: string, more: Partial<Pressed> = {}): Pressed => ({
  key,
  repeat: false,
  shiftKey: false,
  ctrlKey: false,
  altKey: false,
  metaKey: false,
  target: null,
  ...more,
})

const typing = { matches: (what: string) => what.includes('textarea') } as unknown as EventTarget

describe('a key', () => {
  it.each([
    ['ArrowLeft', { kind: 'answer', answer: 'left' }],
    ['ArrowRight', { kind: 'answer', answer: 'right' }],
    ['ArrowDown', { kind: 'answer', answer: 'equal' }],
    ['ArrowUp', { kind: 'answer', answer: 'cannot_tell' }],
    ['s', { kind: 'answer', answer: 'cannot_tell' }],
    ['Z', { kind: 'undo' }],
    ['Backspace', { kind: 'undo' }],
    [' ', { kind: 'pause' }],
    ['r', { kind: 'restart' }],
    ['.', { kind: 'step', direction: 1 }],
    ['?', { kind: 'help' }],
  ])('%s does what it says', (key, action) => {
    expect(actionOf(pressed(key))).toEqual(action)
  })

  it('that repeats by itself does nothing', () => {
    expect(actionOf(pressed('ArrowLeft', { repeat: true }))).toBeNull()
  })

  it('with Ctrl, Alt or the command key is the browser’s', () => {
    for (const name of ['ctrlKey', 'altKey', 'metaKey'] as const) {
      expect(actionOf(pressed('r', { [name]: true }))).toBeNull()
    }
  })

  it('that is typed into a field does nothing', () => {
    expect(actionOf(pressed('s', { target: typing }))).toBeNull()
  })

  it('with Shift turns the camera', () => {
    expect(actionOf(pressed('ArrowLeft', { shiftKey: true }))).toMatchObject({ kind: 'orbit' })
  })
})
