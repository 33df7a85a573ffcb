import { type Launch, type LaunchStatus, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { agentOf, launchOf } from "./builders.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/** Time from which the VMs of these tests are idle: before now by any clock. */
export const IDLE_SINCE = "2026-01-01T00:10:00Z"

/**
 * Creates the Launch of a job whose VM waits for another job. Delete it at the end: the façades of other suites see it too.
 * @param more fields of its spec and status
 */
export async function makeIdleVm(
  client: KubeClient,
  job: { namespace: string; name: string },
  more: { number?: number; spec?: Partial<Launch["spec"]>; status?: LaunchStatus } = {},
): Promise<StoredLaunch> {
  const { number = 1 } = more
  const { spec } = launchOf(await client.get(JOBS, job), number)
  const ref = { namespace: SYSTEM_NAMESPACE, name: launchName(spec.job.uid, number) }
  const run = { image: "a", reuse: { idleSeconds: 300, key: "small" } }
  await client.create(LAUNCHES, { kind: "Launch", metadata: ref, spec: { ...spec, run, ...more.spec } } as StoredLaunch)
  const agent = agentOf({
    registrationTime: "2026-01-01T00:01:00Z",
    finish: { reason: "Succeeded", exitCode: 0, time: "2026-01-01T00:09:00Z" },
    idleTime: IDLE_SINCE,
  })
  const vm = { state: "running", id: `vm-of-${job.name}`, createTime: "2026-01-01T00:00:00Z" } as const
  const status: LaunchStatus = { phase: "idle", vm, agent, ...more.status }
  return await client.patchStatus(LAUNCHES, ref, { merge: { status } })
}
