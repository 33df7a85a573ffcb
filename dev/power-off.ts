import { setTimeout as delay } from "node:timers/promises"
import type { Scope, Vm } from "../src/clouds/cloud.ts"
import { type Clock, timestamp } from "../src/core/apis/clock.ts"
import { isOver, type StoredLaunch } from "../src/core/apis/launch.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import { ifFound } from "../src/core/kube/errors.ts"
import { LAUNCHES } from "../src/core/resources.ts"
import { FIELD_MANAGER } from "../src/operator/launch/actions.ts"
import type { LocalCloud } from "./local-cloud/local.ts"

/** Poll interval of terminating VMs. */
const LOOK_MS = 200

/** Time for the API server to record the planned power-off, seconds. */
const RECORD_SECONDS = 1

export interface PowerOffOptions {
  cloud: Pick<LocalCloud, "list" | "planPowerOff" | "terminate" | "isOn" | "kill">
  scope: Scope
  client: Pick<KubeClient, "get" | "patchStatus">
  systemNamespace: string
  clock: Clock
  /** Time for agents to end their containers and to deliver results and logs. Afterwards they are killed. */
  seconds: number
}

/**
 * Terminates every VM as planned: its folder and its Launch record that before, so that no job counts it as lost. No
 * operator may launch VMs meanwhile, and the gateway must serve. Never rejects because of a single VM.
 * @returns how many VMs ended, and what could not be done
 */
export async function powerOff(options: PowerOffOptions): Promise<{ ended: number; failures: string[] }> {
  const { cloud, scope, seconds } = options
  const asked = new Set<string>()
  const failures: string[] = []
  const isEnough = new AbortController()
  const inOrder = endInOrder(options, { asked, failures, signal: isEnough.signal })
  // Ignored after the race: the VMs are killed then.
  inOrder.catch(() => undefined)
  // A step may take long on a busy machine, and must not delay the kill.
  await Promise.race([inOrder, delay(seconds * 1000, undefined, { signal: isEnough.signal }).catch(() => undefined)])
  isEnough.abort()
  // Includes VMs whose end a full disk does not let the cloud record.
  await settle(await living(cloud, scope), failures, (vm) => cloud.kill(vm))
  return { ended: asked.size, failures }
}

/** Terminates VMs until none is on, or the signal is aborted. */
async function endInOrder(
  options: PowerOffOptions,
  { asked, failures, signal }: { asked: Set<string>; failures: string[]; signal: AbortSignal },
): Promise<void> {
  const { cloud, scope } = options
  let left = await living(cloud, scope)
  while (!signal.aborted && (await isAnyOn(cloud, left))) {
    // A launch in progress when the operator ended may add a VM.
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

/**
 * Records that a VM ends because its machine stops. The record in its folder is for the next start, because the API server
 * may be what ended this one. The record on its Launch is for now, because the disk may be full. One of them is enough.
 */
async function recordPlan(vm: Vm, { cloud, client, systemNamespace, clock }: PowerOffOptions): Promise<void> {
  const limit = { timeoutSeconds: RECORD_SECONDS }
  const onLaunch = async (): Promise<void> => {
    const found = await ifFound(client.get(LAUNCHES, { namespace: systemNamespace, name: vm.launch }, limit))
    if (found !== undefined && isWanted(found)) await recordLoss(found, timestamp(clock.now()), client, limit)
  }
  const records = await Promise.allSettled([cloud.planPowerOff(vm), onLaunch()])
  const failures = records.filter((record) => record.status === "rejected")
  if (failures.length === records.length) throw new AggregateError(failures.map(({ reason }) => messageOf(reason)))
}

async function recordLoss(
  { metadata: { namespace, name } }: StoredLaunch,
  time: string,
  client: Pick<KubeClient, "patchStatus">,
  limit: { timeoutSeconds?: number } = {},
): Promise<void> {
  const loss = {
    reason: "PoweredOff",
    message: "Berth was stopped on this machine, and its VMs with it",
    time,
  } as const
  const change = { merge: { status: { loss } } }
  await client.patchStatus(LAUNCHES, { namespace, name }, change, { fieldManager: FIELD_MANAGER, ...limit })
}

/**
 * Records on the Launches which VMs the last stop powered off, where that stop could not. Call it before an operator
 * starts: it would take such a VM for a lost one.
 */
export async function takeOverPlans({
  cloud,
  client,
  systemNamespace: namespace,
}: {
  cloud: Pick<LocalCloud, "powerOffTime">
  client: Pick<KubeClient, "pages" | "patchStatus">
  systemNamespace: string
}): Promise<void> {
  for await (const { items } of client.pages(LAUNCHES, { namespace })) {
    for (const launch of items.filter(isWanted)) {
      const time = await cloud.powerOffTime({ id: launch.metadata.name })
      if (time !== undefined) await recordLoss(launch, time, client)
    }
  }
}

/** Returns true if the VM would have continued: nothing else ends it. */
function isWanted(launch: StoredLaunch): boolean {
  const { spec, status, metadata } = launch
  const isEnding = spec.ended === true || metadata.deletionTimestamp !== undefined || isOver(launch)
  return !isEnding && status?.loss === undefined && status?.agent?.finish === undefined
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
