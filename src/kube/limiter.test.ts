import { expect, test } from "vitest"
import { Limiter } from "./limiter.ts"

const forever = new AbortController().signal

test("limits the number of running tasks, in the order of their requests", async () => {
  const limiter = new Limiter(2)
  const ran: number[] = []
  let running = 0
  let most = 0
  const task = async (id: number): Promise<void> => {
    await limiter.acquire(forever)
    most = Math.max(most, ++running)
    ran.push(id)
    await new Promise(setImmediate)
    running--
    limiter.release()
  }
  await Promise.all([1, 2, 3, 4, 5, 6].map(task))
  expect(most).toBe(2)
  expect(ran).toEqual([1, 2, 3, 4, 5, 6])
})

test("gives no permit to a task that stopped waiting", async () => {
  const limiter = new Limiter(1)
  await limiter.acquire(forever)
  const impatient = new AbortController()
  const given = limiter.acquire(impatient.signal)
  const patient = limiter.acquire(forever)
  impatient.abort(new Error("too slow"))
  await expect(given).rejects.toThrow("too slow")
  limiter.release()
  await patient
  expect(limiter.waiting).toBe(0)
})
