import { type Clock, secondsBetween, timestamp } from "../core/apis/clock.ts"
import type { Finish } from "../core/apis/launch.ts"
import type { BootConfig } from "../core/protocol/protocol.ts"
import type { AgentState, Disk } from "./disk.ts"
import type { Runtime } from "./runtimes/runtime.ts"

/** Reserve at the end of a VM's time, in which it is no longer kept, seconds. */
const RESERVE_SECONDS = 30

/** Facts on which the time of a kept VM depends. */
export interface KeepFacts {
  clock: Clock
  disk: Pick<Disk, "state">
  runtime: Pick<Runtime, "kept">
  vm: Pick<BootConfig, "lifetimeSeconds" | "budgetSeconds">
}

/** Adds until when the VM is kept, if the run has failed and its job asks for that. The VM's lifetime and budget win. */
export function withKeep(finish: Finish, { clock, disk, runtime, vm }: KeepFacts): Finish {
  const { debug } = disk.state.limits ?? {}
  if (debug === undefined || runtime.kept === undefined || finish.reason === "Succeeded") return finish
  const life = Math.min(vm.lifetimeSeconds, vm.budgetSeconds ?? Number.POSITIVE_INFINITY) - RESERVE_SECONDS
  const left = life - secondsBetween(disk.state.bootTime, clock.now())
  const seconds = Math.floor(Math.min(debug.keepSeconds, left))
  if (seconds <= 0) return finish
  return { ...finish, keptUntil: timestamp(new Date(clock.now().getTime() + seconds * 1000)) }
}

/** Returns the seconds for which the VM of a run that has ended is still kept; 0: it is not. */
export function keptSecondsLeft({ finish, finishStored }: AgentState, clock: Clock): number {
  if (finish?.keptUntil === undefined || !finishStored) return 0
  return Math.max(0, secondsBetween(clock.now(), finish.keptUntil))
}
