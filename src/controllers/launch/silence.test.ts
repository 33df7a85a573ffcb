import { expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, time, vmStatus } from "../../../test/controllers/builders.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import { receivingSince, SILENCE_DEFAULTS, silentLaunches } from "./silence.ts"

function heard(seconds: number): StoredLaunch {
  return launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ lastHeartbeatTime: time(seconds) }) }) })
}

const silentAt = (seconds: number, launches: readonly StoredLaunch[], since: Date | undefined) =>
  silentLaunches(launches, since, at(seconds), SILENCE_DEFAULTS)

test("the only agent is never silent: it may be the gateway that hears nothing", () => {
  const launches = [heard(0)]
  expect(receivingSince(at(0), launches, at(700), SILENCE_DEFAULTS)).toBeUndefined()
  expect(silentAt(700, launches, undefined)).toEqual([])
})

test("silent while others were heard all the time", () => {
  const launches = [heard(0), heard(690)]
  const since = receivingSince(at(0), launches, at(700), SILENCE_DEFAULTS)
  expect(since).toEqual(at(0))
  expect(silentAt(599, launches, since)).toEqual([])
  expect(silentAt(600, launches, since)).toEqual([launches[0]])
})

test("after an outage of the gateway everybody has the whole time again", () => {
  const launches = [heard(0), heard(0), heard(800)]
  const since = receivingSince(undefined, launches, at(800), SILENCE_DEFAULTS)
  expect(since).toEqual(at(800))
  expect(silentAt(801, launches, since)).toEqual([])
})

test("when many fall silent at once only a few are given up, the longest silent first", () => {
  const launches = [heard(30), heard(10), heard(20), heard(690)]
  expect(silentAt(700, launches, at(0))).toEqual([launches[1]])
  const given = launchOf(jobOf(), 1, {
    status: vmStatus({ phase: "terminated", loss: { reason: "Silent", message: "", time: time(650) } }),
  })
  expect(silentAt(700, [...launches, given], at(0))).toEqual([])
})

test("one that shall go anyway is not silent", () => {
  const ended = launchOf(jobOf(), 1, { spec: { ended: true }, status: vmStatus({ agent: agentOf() }) })
  expect(silentAt(9000, [ended, heard(8990)], at(0))).toEqual([])
})
