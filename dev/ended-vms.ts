import type { Scope } from "../src/clouds/cloud.ts"
import { pause } from "../src/core/apis/backoff.ts"
import type { Clock } from "../src/core/apis/clock.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import { LAUNCHES } from "../src/core/resources.ts"
import type { LocalCloud } from "./local-cloud/local.ts"

/** Time between two looks for VMs that are no longer needed, seconds. */
const LOOK_SECONDS = 300

export interface EndedVmsOptions {
  cloud: Pick<LocalCloud, "list" | "forget">
  scope: Scope
  client: Pick<KubeClient, "pages">
  systemNamespace: string
  clock: Clock
  onError: (error: unknown) => void
}

/**
 * Removes the records of VMs that have ended and whose Launch is deleted, until the signal is aborted. While the Launch
 * exists, the record shows its operator that the VM has ended, and keeps a repeated request from a second VM.
 */
export async function forgetEndedVms(options: EndedVmsOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await forgetUnneeded(options, signal).catch((error: unknown) => {
      if (!signal.aborted) options.onError(error)
    })
    await pause(options.clock, LOOK_SECONDS, signal).catch(() => undefined)
  }
}

/** Removes the records of all VMs that have ended and whose Launch is deleted, once. */
export async function forgetUnneeded(
  { cloud, scope, client, systemNamespace: namespace }: Omit<EndedVmsOptions, "clock" | "onError">,
  signal?: AbortSignal,
): Promise<void> {
  const ended = (await cloud.list(scope)).filter(({ state }) => state === "terminated")
  if (ended.length === 0) return
  // Read after the VMs: a Launch is older than its VM, so a VM without one has lost it.
  const launches = new Set<string>()
  for await (const { items } of client.pages(LAUNCHES, { namespace, ...(signal && { signal }) })) {
    for (const { metadata } of items) launches.add(metadata.name)
  }
  await cloud.forget(ended.filter(({ launch }) => !launches.has(launch)))
}
