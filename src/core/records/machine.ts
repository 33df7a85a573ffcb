import { findCondition } from "../apis/conditions.ts"
import { MachineCondition, MachineReason, type StoredMachine } from "../apis/machine.ts"
import { holderOf, SILENT } from "../machines/machine.ts"

/** States of a machine, in one word. */
export const MACHINE_STATES = [
  "pending",
  "ready",
  "busy",
  "draining",
  "drained",
  "silent",
  "unfit",
  "removing",
] as const
export type MachineState = (typeof MACHINE_STATES)[number]

/**
 * Returns the state of a machine. Pure. `pending`: it waits for its host, or for a place in its project. `draining`: it gets
 * no other job, and its present one runs on. `silent`: its host has sent nothing for some time.
 */
export function machineState(machine: StoredMachine): MachineState {
  const { metadata, spec, status } = machine
  const host = status?.host
  const isBusy = holderOf(machine) !== undefined
  if (metadata.deletionTimestamp !== undefined) return "removing"
  const ready = findCondition(status?.conditions, MachineCondition.Ready)
  if (host === undefined || ready?.reason === MachineReason.ProjectLimit) return "pending"
  if (SILENT.includes(ready?.reason ?? "")) return "silent"
  if (host.unfit !== undefined) return "unfit"
  if (spec.unschedulable === true) return isBusy ? "draining" : "drained"
  return isBusy ? "busy" : "ready"
}
