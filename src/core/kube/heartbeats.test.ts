import { expect, test } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { ANNOTATIONS } from "../apis/meta.ts"
import { heartbeatsText, parseHeartbeats, SharedHeartbeats } from "./heartbeats.ts"
import type { Lease } from "./lease.ts"
import type { ChangeHandler } from "./store.ts"

test("a text of heartbeats has each name and time, and ignores anything else", () => {
  const times = new Map([
    ["a-1", 1_700_000_000],
    ["b.c-2", 1],
  ])
  expect(parseHeartbeats(heartbeatsText(times))).toEqual(times)
  expect(heartbeatsText([["a", 1.9]])).toBe("a:1")
  expect(parseHeartbeats("a:x :5 b: c d:-1 e:1e400 a:2")).toEqual(new Map([["a", 2]]))
  expect(parseHeartbeats(undefined)).toEqual(new Map())
})

test("the latest time of any Lease counts, unless it is in the future", () => {
  const clock = new ManualClock()
  clock.advance(1000)
  let change: ChangeHandler<Lease> = () => {}
  const heartbeats = new SharedHeartbeats(
    {
      onChange: (handler) => {
        change = handler
        return () => true
      },
    },
    clock,
  )
  const write = (key: string, text: string | undefined) => {
    const metadata = { name: key, annotations: { [ANNOTATIONS.heartbeats]: text ?? "" } }
    change({ key, ...(text !== undefined && { current: { metadata, spec: {} } as unknown as Lease }) })
  }
  const at = (seconds: number) => new Date(seconds * 1000)
  expect(heartbeats.get("vm")).toBeUndefined()
  write("one", "vm:900 other:1")
  write("two", "vm:950")
  expect(heartbeats.get("vm")).toEqual(at(950))
  write("two", "vm:90000")
  expect(heartbeats.get("vm")).toEqual(at(900))
  write("one", "other:1")
  expect(heartbeats.get("vm")).toBeUndefined()
  write("two", undefined)
  expect(heartbeats.get("other")).toEqual(at(1))
})
