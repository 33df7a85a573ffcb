import { getEventListeners } from "node:events"
import { expect, test } from "vitest"
import { onAborted, unlessAborted, untilAborted } from "./abort.ts"

const REASON = new Error("the program ends")

test("a listener hears the abort once, also one that was before, and none after it left", () => {
  const end = new AbortController()
  const heard: string[] = []
  onAborted(end.signal, () => heard.push("stays"))
  onAborted(end.signal, () => heard.push("left"))()
  end.abort(REASON)
  onAborted(end.signal, () => heard.push("late"))
  expect(heard).toEqual(["stays", "late"])
})

test("waiting for an abort ends with it, also if it was before", async () => {
  const end = new AbortController()
  const waiting = untilAborted(end.signal)
  end.abort(REASON)
  await expect(waiting).resolves.toBeUndefined()
  await expect(untilAborted(end.signal)).resolves.toBeUndefined()
})

test("work ends by itself, or with the reason of the abort, and leaves no listener", async () => {
  const end = new AbortController()
  await expect(unlessAborted(Promise.resolve(1), end.signal)).resolves.toBe(1)
  await expect(unlessAborted(Promise.reject(new Error("its own")), end.signal)).rejects.toThrow("its own")
  expect(getEventListeners(end.signal, "abort")).toEqual([])
  const late = Promise.withResolvers<never>()
  const abandoned = unlessAborted(late.promise, end.signal)
  end.abort(REASON)
  await expect(abandoned).rejects.toBe(REASON)
  // Unhandled, this would end the test run.
  late.reject(new Error("too late"))
  await expect(unlessAborted(Promise.resolve(1), end.signal)).rejects.toBe(REASON)
})
