import { expect, it, vi } from 'vitest'

import { RequestRejected, ServerUnreachable } from '../src/lib/api'
import type { PlayedEpisode } from '../src/lib/api-types'
import { getEpisode, getPlaySession } from '../src/lib/play-api'
import { PlayState } from '../src/lib/play-state.svelte'
import { settle } from './fakes'

vi.mock('../src/lib/play-api', () => ({
  getPlaySession: vi.fn(() => Promise.resolve({ num_episodes: 20 })),
  getEpisode: vi.fn((number: number) => Promise.resolve({ number, sides: [] })),
}))


async function start(number = 0): Promise<PlayState> {
  const play = new PlayState(number)
  play.start()
  await settle()
  return play
}

const numbersOf = ({ current, next, selected }: PlayState) => [
  current?.episode.number,
  next?.episode.number,
  selected,
]

it('shows the episode of the link after a retry', async () => {
  vi.mocked(getPlaySession).mockRejectedValueOnce(new ServerUnreachable('restarting'))
  const play = await start(4)
  play.retry()
  await settle()
  expect(getPlaySession).toHaveBeenCalledTimes(2)
  expect(numbersOf(play)).toEqual([4, 5, 4])
})

it('repeats the current episode while a selected one is loading', async () => {
  const play = await start()
  let load: (episode: PlayedEpisode) => void = () => undefined
  vi.mocked(getEpisode).mockReturnValueOnce(new Promise((resolve) => (load = resolve)))
  const selecting = play.select(9)
  play.showNext()
  expect(numbersOf(play)).toEqual([0, 1, 9])
  load({ number: 9, sides: [] } as unknown as PlayedEpisode)
  await selecting
  await settle()
  expect(numbersOf(play)).toEqual([9, 10, 9])
  play.showNext()
  expect(numbersOf(play)).toEqual([10, undefined, 10])
})

it('continues with the episode that follows if the selected one is rejected', async () => {
  const play = await start()
  const problem = { type: '', title: '', status: 404, detail: 'deleted' }
  vi.mocked(getEpisode).mockRejectedValueOnce(new RequestRejected(problem))
  await play.select(9)
  expect(numbersOf(play)).toEqual([0, 1, 0])
  play.showNext()
  expect(play.current?.episode.number).toBe(1)
})
