import { expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, time, vmStatus } from "../../../../test/harness/builders.ts"
import type { AgentStatus, StoredLaunch } from "../../../core/apis/launch.ts"
import { IndexedStore } from "../../../core/kube/store.ts"
import { toRecord } from "../../../core/records/job.ts"
import { lastHeartbeatIn } from "./heartbeat.ts"

const job = jobOf()
const owner = { organizationId: "o", projectId: "p" }

/** Returns `last_heartbeat_at` of a job with a VM. */
function shown(agent: Partial<AgentStatus> | undefined, heard?: Date, of = job): string | null {
  const launches = new IndexedStore<StoredLaunch>({ jobUid: (launch) => [launch.spec.job.uid] })
  if (agent !== undefined) launches.put(launchOf(job, 1, { status: vmStatus({ agent: agentOf(agent) }) }))
  return toRecord(of, owner, { lastHeartbeatTime: lastHeartbeatIn(of, launches, { get: () => heard }) })
    .last_heartbeat_at
}

test("a running job shows the later heartbeat of Launch and Lease", () => {
  expect(shown({ lastHeartbeatTime: time(40) }, at(70))).toBe(time(70))
  expect(shown({ lastHeartbeatTime: time(70) }, at(40))).toBe(time(70))
  expect(shown({ lastHeartbeatTime: time(40) })).toBe(time(40))
  expect(shown(undefined, at(70))).toBeNull()
})

test("an ended job shows the heartbeat of its status after its Launches are deleted", () => {
  const ended = jobOf({ ...job, status: { phase: "succeeded", lastHeartbeatTime: time(90) } })
  expect(shown(undefined, undefined, ended)).toBe(time(90))
})
