import { expect, it } from "vitest"
import type { Host, MachineLaunch, MachineSpec, StoredMachine } from "../apis/machine.ts"
import { machineState } from "./machine.ts"

const T0 = "2026-01-01T00:00:00Z"
const HOST: Host = {
  ...{ joinNumber: 1, joinTime: T0, signingKey: "s", encryptionKey: "e", version: "1", sequence: 1 },
  facts: { cpu: 1, memoryGib: 1, diskGib: 1, architecture: "amd64" },
  ...{ lastHeartbeatTime: T0, leaseSeconds: 900 },
}
const LAUNCH: MachineLaunch = {
  ...{ name: "l", installation: "i", namespace: "lab", region: "own", specDigest: "d", createTime: T0 },
}

function machine(
  status: NonNullable<StoredMachine["status"]>,
  spec: MachineSpec = {},
  metadata: { deletionTimestamp?: string } = {},
): StoredMachine {
  const own = { name: "m", namespace: "lab", uid: "u", resourceVersion: "1", generation: 1, creationTimestamp: T0 }
  return { apiVersion: "berth.dev/v1alpha1", kind: "Machine", metadata: { ...own, ...metadata }, spec, status }
}

const running = { host: { ...HOST, running: "l" }, launch: LAUNCH }
const notReady = (reason: string) => [
  { type: "Ready", status: "False" as const, reason, message: "", lastTransitionTime: T0 },
]

it.each([
  ["pending", machine({})],
  ["pending", machine({ host: HOST, conditions: notReady("ProjectLimit") })],
  ["pending", machine({ host: HOST, conditions: notReady("NoProject") })],
  ["ready", machine({ host: HOST })],
  ["ready", machine({ host: { ...HOST, freed: "l" }, launch: LAUNCH })],
  ["busy", machine({ host: HOST, launch: LAUNCH })],
  ["busy", machine(running)],
  ["draining", machine(running, { unschedulable: true })],
  ["drained", machine({ host: HOST }, { unschedulable: true })],
  ["silent", machine({ ...running, conditions: notReady("Silent") })],
  ["silent", machine({ ...running, conditions: notReady("LeaseExpired") })],
  ["unfit", machine({ host: { ...HOST, unfit: "full" } })],
  ["unfit", machine({ ...running, launch: { ...LAUNCH, lostTime: T0 } })],
  ["removing", machine(running, {}, { deletionTimestamp: T0 })],
] as const)("a machine is %s", (state, object) => {
  expect(machineState(object)).toBe(state)
})
