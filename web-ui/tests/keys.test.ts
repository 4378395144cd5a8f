import { describe, expect, it } from 'vitest'
import { actionOf, isFirstClick } from '../src/lib/keys'
import type { KeyPress } from '../src/lib/keys'

const pressed = (key: string, more: Partial<KeyPress> = {}): KeyPress => ({
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

describe('actionOf while clips are ranked', () => {
  it.each([
    ['3', { kind: 'place', number: 3 }],
    ['=', { kind: 'tie' }],
    ['Backspace', { kind: 'takeBack' }],
    ['Enter', { kind: 'submit' }],
    ['s', { kind: 'leaveOut' }],
    ['z', { kind: 'undo' }],
    [' ', { kind: 'pause' }],
    ['w', { kind: 'watch' }],
    ['ArrowLeft', null],
    ['ArrowDown', null],
  ])('%s', (key, action) => {
    expect(actionOf(pressed(key), true)).toEqual(action)
  })

  it('leaves Enter to a focused button', () => {
    const target = { matches: (what: string) => /button|focus-visible/.test(what) } as unknown as EventTarget
    expect(actionOf(pressed('Enter', { target }), true)).toBeNull()
  })
})

describe('actionOf', () => {
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
    ['w', { kind: 'watch' }],
    ['?', { kind: 'help' }],
  ])('maps %s to its action', (key, action) => {
    expect(actionOf(pressed(key))).toEqual(action)
  })

  it.each([
    ['ArrowLeft', { repeat: true }],
    ['r', { ctrlKey: true }],
    ['r', { altKey: true }],
    ['r', { metaKey: true }],
    ['s', { target: typing }],
  ])('leaves %s with %j to the browser', (key, more) => {
    expect(actionOf(pressed(key, more))).toBeNull()
  })

  it('leaves the vertical arrow keys to focused instructions, which scroll', () => {
    const target = { matches: (what: string) => what === '.instructions' } as unknown as EventTarget
    expect(actionOf(pressed('ArrowDown', { target }))).toBeNull()
    expect(actionOf(pressed('ArrowLeft', { target }))).toEqual({ kind: 'answer', answer: 'left' })
  })

  it('maps Shift with arrow keys to the camera', () => {
    expect(actionOf(pressed('ArrowLeft', { shiftKey: true }))).toMatchObject({ kind: 'orbit' })
  })
})

it('tells a first click and a key press from the second click of a double click', () => {
  const isFirst = [0, 1, 2].map((detail) => isFirstClick({ detail } as MouseEvent))
  expect(isFirst).toEqual([true, true, false])
})
