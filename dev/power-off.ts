import { setTimeout as delay } from "node:timers/promises"
import { type Clock, timestamp } from "../src/apis/clock.ts"
import { isOver, type StoredLaunch } from "../src/apis/launch.ts"
import type { LocalCloud } from "../src/cloud/local/local.ts"
import type { Scope, Vm } from "../src/cloud/provider.ts"
import { FIELD_MANAGER, LAUNCHES } from "../src/controllers/launch/options.ts"
import type { KubeClient } from "../src/kube/client.ts"
import { ifFound } from "../src/kube/errors.ts"

/** Between two looks at VMs that are ending. */
const LOOK_MS = 200

/** How long the API server may take to record that the power-off is planned, seconds. */
const RECORD_SECONDS = 1

export interface PowerOffOptions {
  cloud: Pick<LocalCloud, "list" | "terminate" | "isOn" | "kill">
  scope: Scope
  client: Pick<KubeClient, "get" | "patchStatus">
  systemNamespace: string
  clock: Clock
  /** How long agents may take to end their containers and to deliver results and logs; then they are killed. */
  seconds: number
}

/**
 * Ends every VM, as planned: its Launch says so before, so that no job counts it as lost. No operator may launch
 * meanwhile, and the gateway must serve. Never rejects for one VM's sake.
 * @returns how many VMs ended, and what could not be done
 */
export async function powerOff(options: PowerOffOptions): Promise<{ ended: number; failures: string[] }> {
  const { cloud, scope, seconds } = options
  const asked = new Set<string>()
  const failures: string[] = []
  const isEnough = new AbortController()
  const inOrder = endInOrder(options, { asked, failures, signal: isEnough.signal })
  // Its failure after the race changes nothing: the VMs are killed then.
  inOrder.catch(() => undefined)
  // A step may take long on a busy machine: the kill must not wait for it.
  await Promise.race([inOrder, delay(seconds * 1000, undefined, { signal: isEnough.signal }).catch(() => undefined)])
  isEnough.abort()
  // Also what a full disk does not let the cloud record as ended.
  await settle(await living(cloud, scope), failures, (vm) => cloud.kill(vm))
  return { ended: asked.size, failures }
}

/** Ends VMs until none is on, or the signal is aborted. */
async function endInOrder(
  options: PowerOffOptions,
  { asked, failures, signal }: { asked: Set<string>; failures: string[]; signal: AbortSignal },
): Promise<void> {
  const { cloud, scope } = options
  let left = await living(cloud, scope)
  while (!signal.aborted && (await isAnyOn(cloud, left))) {
    // A launch that was under way when the operator ended may bring another VM.
    const fresh = left.filter(({ id }) => !asked.has(id))
    for (const { id } of fresh) asked.add(id)
    await settle(fresh, failures, (vm) => recordPlan(vm, options))
    await settle(fresh, failures, (vm) => cloud.terminate(vm))
    await delay(LOOK_MS)
    left = await living(cloud, scope)
  }
}

async function living(cloud: Pick<LocalCloud, "list">, scope: Scope): Promise<Vm[]> {
  return (await cloud.list(scope)).filter(({ state }) => state !== "terminated")
}

async function isAnyOn(cloud: Pick<LocalCloud, "isOn">, vms: readonly Vm[]): Promise<boolean> {
  return (await Promise.all(vms.map((vm) => cloud.isOn(vm)))).includes(true)
}

async function settle(vms: readonly Vm[], failures: string[], act: (vm: Vm) => Promise<void>): Promise<void> {
  const results = await Promise.allSettled(vms.map(act))
  for (const result of results) if (result.status === "rejected") failures.push(messageOf(result.reason))
}

/** Writes on a VM's Launch that it ends because its machine stops. */
async function recordPlan({ launch }: Vm, { client, systemNamespace, clock }: PowerOffOptions): Promise<void> {
  const ref = { namespace: systemNamespace, name: launch }
  const limit = { timeoutSeconds: RECORD_SECONDS }
  const found = await ifFound(client.get(LAUNCHES, ref, limit))
  if (found === undefined || !isWanted(found)) return
  const message = "Berth was stopped on this machine, and its VMs with it"
  const loss = { reason: "PoweredOff", message, time: timestamp(clock.now()) } as const
  await client.patchStatus(LAUNCHES, ref, { merge: { status: { loss } } }, { fieldManager: FIELD_MANAGER, ...limit })
}

/** Whether the VM would have gone on: no other reason ends it. */
function isWanted(launch: StoredLaunch): boolean {
  const { spec, status, metadata } = launch
  const isEnding = spec.ended === true || metadata.deletionTimestamp !== undefined || isOver(launch)
  return !isEnding && status?.loss === undefined && status?.agent?.finish === undefined
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
