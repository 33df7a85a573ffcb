import { expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, time, vmStatus } from "../../../test/harness/builders.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import type { LaunchStatus } from "../../core/apis/launch.ts"
import { buildConditions } from "./conditions.ts"

const refusal = { class: "Capacity", message: "none left", time: time(1) } as const
const loss = { reason: "Preempted", message: "the cloud preempted the VM", time: time(9) } as const
const bootFailure = { reason: "EngineUnavailable", message: "no engine", time: time(9) } as const

/** `+` is True, `-` is False; a condition that is missing is not listed. */
function short(before: LaunchStatus | undefined, next: LaunchStatus): string {
  const launch = launchOf(jobOf(), 1, before && { status: before })
  return buildConditions(launch, next, at(10))
    .map(({ type, status, reason }) => `${status === "True" ? "+" : "-"}${type} ${reason}`)
    .join(", ")
}

test.each<[string, LaunchStatus | undefined, LaunchStatus, string]>([
  ["without a VM", undefined, { phase: "requested" }, "-Ready Requested, +Reconciling Requested"],
  ["whose VM boots", undefined, vmStatus(), "-Ready Booting, +Reconciling Booting"],
  [
    "whose agent has registered",
    vmStatus({ agent: agentOf() }),
    { phase: "registered" },
    "+Ready Registered, -Reconciling Registered",
  ],
  ["whose container runs", vmStatus(), { phase: "running" }, "+Ready Started, -Reconciling Started"],
  [
    "whose VM is being terminated, lost or not",
    vmStatus({ loss }),
    { phase: "terminating" },
    "-Ready Terminating, +Reconciling Terminating",
  ],
  ["that has ended", vmStatus(), { phase: "terminated" }, "+Ready Terminated, -Reconciling Terminated"],
  [
    "whose VM was lost",
    vmStatus(),
    { phase: "terminated", loss },
    "-Ready Preempted, -Reconciling Preempted, +Stalled Preempted",
  ],
  [
    "whose VM could not run containers",
    vmStatus({ bootFailure }),
    { phase: "terminated" },
    "-Ready EngineUnavailable, -Reconciling EngineUnavailable, +Stalled EngineUnavailable",
  ],
  [
    "that the cloud refused",
    undefined,
    { phase: "refused", refusal },
    "-Ready Capacity, -Reconciling Capacity, +Stalled Capacity",
  ],
])("a Launch %s has its conditions for kstatus", (_, before, next, expected) => {
  expect(short(before, next)).toBe(expected)
})

test("a condition keeps the time of its last change, and its message is that of the status", () => {
  const first = buildConditions(launchOf(jobOf()), { phase: "requested", message: "requesting" }, at(1))
  const launch = launchOf(jobOf(), 1, { status: { phase: "requested", conditions: first } })
  const ready = findCondition(buildConditions(launch, { phase: "created", message: "booting" }, at(2)), "Ready")
  expect(ready).toMatchObject({ lastTransitionTime: time(1), message: "booting", observedGeneration: 1 })
})
