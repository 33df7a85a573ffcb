import { launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { agentOf, launchOf } from "./builders.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/**
 * Creates the Launch of a job whose container runs. Delete it at the end: the façades of other suites see it too.
 * @param abilities those of its agent
 */
export async function makeRunningVm(
  client: KubeClient,
  job: { namespace: string; name: string },
  abilities: string[] = ["sessions"],
): Promise<StoredLaunch> {
  const { spec } = launchOf(await client.get(JOBS, job), 1)
  const ref = { namespace: SYSTEM_NAMESPACE, name: launchName(spec.job.uid, 1) }
  await client.create(LAUNCHES, { kind: "Launch", metadata: ref, spec } as StoredLaunch)
  const time = "2026-01-01T00:01:00Z"
  const agent = agentOf({ registrationTime: time, startTime: time, abilities })
  const vm = { state: "running", id: `vm-of-${job.name}`, createTime: "2026-01-01T00:00:00Z" } as const
  return await client.patchStatus(LAUNCHES, ref, { merge: { status: { phase: "running", vm, agent } } })
}
