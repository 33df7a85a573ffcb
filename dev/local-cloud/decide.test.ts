import { describe, expect, it } from "vitest"
import { nextStep, type Step, TERMINATION_GRACE_SECONDS, type VmFacts } from "./decide.ts"

const NOW = new Date("2025-01-01T12:00:00Z")
const ON: VmFacts = { power: "on", hasDisk: true }

/** Returns the step for the same facts by clocks that were changed by up to a year. */
function stepsByAnyClock(facts: VmFacts): Set<Step> {
  const hours = [-8760, -2, 0, 2, 25, 8760]
  return new Set(hours.map((ahead) => nextStep(facts, new Date(NOW.getTime() + ahead * 3_600_000))))
}

describe("the next step of a local VM", () => {
  const asked = { ...ON, terminationRequestTime: "2025-01-01T11:59:59Z" }

  it.each<[string, VmFacts, Step]>([
    ["nothing for a running VM", ON, "none"],
    ["nothing for a VM that may still start", { ...ON, power: "off" }, "none"],
    ["SIGTERM for a VM that was asked to end", asked, "stop"],
    ["time for the agent after SIGTERM", { ...asked, stoppedSeconds: TERMINATION_GRACE_SECONDS - 1 }, "none"],
    ["SIGKILL after that time", { ...asked, stoppedSeconds: TERMINATION_GRACE_SECONDS }, "kill"],
    ["SIGKILL if a full disk did not take the request", { ...ON, stoppedSeconds: TERMINATION_GRACE_SECONDS }, "kill"],
    ["no start for a VM that was asked to end before", { ...asked, power: "off" }, "cancelBoot"],
    ["the end for a dead agent", { ...ON, power: "gone" }, "cleanUp"],
  ])("is %s, whatever the calendar shows", (_, facts, step) => {
    expect(stepsByAnyClock(facts)).toEqual(new Set([step]))
  })

  it("deletes the disk some minutes after the end, once", () => {
    const ended = { ...ON, power: "gone", terminationTime: "2025-01-01T11:55:00Z" } as const
    expect(nextStep(ended, NOW)).toBe("none")
    expect(nextStep({ ...ended, terminationTime: "2025-01-01T11:45:00Z" }, NOW)).toBe("deleteDisk")
    expect(nextStep({ ...ended, terminationTime: "2024-01-01T11:45:00Z", hasDisk: false }, NOW)).toBe("none")
  })
})
