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
const overLimit = [
  { type: "Ready", status: "False" as const, reason: "ProjectLimit", message: "", lastTransitionTime: T0 },
]

it.each([
  ["pending", machine({}), 0],
  ["pending", machine({ host: HOST, conditions: overLimit }), 0],
  ["ready", machine({ host: HOST }), 150],
  ["ready", machine({ host: { ...HOST, freed: "l" }, launch: LAUNCH }), 0],
  ["busy", machine({ host: HOST, launch: LAUNCH }), 0],
  ["busy", machine(running), 0],
  ["draining", machine(running, { unschedulable: true }), 0],
  ["drained", machine({ host: HOST }, { unschedulable: true }), 0],
  ["silent", machine(running), 151],
  ["unfit", machine({ host: { ...HOST, unfit: "full" } }), 0],
  ["removing", machine(running, {}, { deletionTimestamp: T0 }), 0],
] as const)("a machine is %s", (state, object, seconds) => {
  expect(machineState(object, new Date(Date.parse(T0) + seconds * 1000))).toBe(state)
})
