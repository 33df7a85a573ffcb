import type { StoredMachine } from "../apis/machine.ts"
import { holderOf, type Unavailable, whyUnavailable } from "../machines/machine.ts"

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

/** State of a machine that gets no job, by the reason. A drained one may still have its last job. */
const STATES: Readonly<Record<Exclude<Unavailable, "unschedulable">, MachineState>> = {
  deleted: "removing",
  overLimit: "pending",
  noProject: "pending",
  notJoined: "pending",
  silent: "silent",
  unfit: "unfit",
  cleaning: "unfit",
  busy: "busy",
}

/**
 * Returns the state of a machine. Pure. `pending`: it waits for its host, its project, or a place in that. `draining`: it gets
 * no other job, and its present one runs on. `silent`: its host has sent nothing for some time.
 */
export function machineState(machine: StoredMachine): MachineState {
  const why = whyUnavailable(machine)
  if (why === undefined) return "ready"
  if (why !== "unschedulable") return STATES[why]
  return holderOf(machine) === undefined ? "drained" : "draining"
}
