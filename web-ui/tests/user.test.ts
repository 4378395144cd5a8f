import { expect, it, vi } from 'vitest'

import { getCurrentUser, ServerUnreachable, SignedOut } from '../src/lib/api'
import { currentUser } from '../src/lib/user.svelte'

vi.mock('../src/lib/api', async (original) => ({ ...(await original()), getCurrentUser: vi.fn() }))

it('reads the user again until the service answers', async () => {
  vi.useFakeTimers()
  const reading = vi.mocked(getCurrentUser)
  reading.mockRejectedValueOnce(new ServerUnreachable('restarting'))
  await currentUser.read()
  expect([currentUser.isRead, vi.getTimerCount()]).toEqual([false, 1])
  reading.mockRejectedValueOnce(new SignedOut('expired'))
  await vi.advanceTimersByTimeAsync(500)
  expect([currentUser.isRead, currentUser.isKnown, vi.getTimerCount()]).toEqual([true, false, 0])
  reading.mockResolvedValueOnce({ name: 'ann', role: 'owner' } as never)
  await currentUser.read()
  expect([currentUser.isRead, currentUser.isOwner, currentUser.failure]).toEqual([true, true, null])
  vi.useRealTimers()
})
