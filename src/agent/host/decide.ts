import { defined } from "../../core/apis/defined.ts"
import type { MachineFacts } from "../../core/apis/machine.ts"
import { BEAT_SECONDS, LEASE_END_SECONDS } from "../../core/machines/machine.ts"
import type { BeatRequest, BeatResponse, JoinClaims } from "../../core/protocol/machines.ts"
import type { HostState, Identity } from "./disk.ts"

/** Least time between two messages of a host that waits, seconds: something on the way may answer each at once. */
const WAITING_SECONDS = 1

/** Time between two messages of a host that can run no job, seconds. */
const UNFIT_SECONDS = 10

/** Next step of an agent that starts for its disk's order. */
export type Work = "nothing" | "run" | "clean"

/** Returns the work that is left by this state. Without time for a run, the host only ends and removes it. Pure. */
export function workOf({ order }: HostState, leaseSeconds: number): Work {
  if (order === undefined) return "nothing"
  return order.hasEnded === true || leaseSeconds <= LEASE_END_SECONDS ? "clean" : "run"
}

/** Returns true if a host with this token has to join, as a machine or with a token that it isn't yet. Pure. */
export function isNewJoin(identity: Identity | undefined, { uid, number }: JoinClaims): boolean {
  return identity === undefined || identity.uid !== uid || identity.number < number
}

/** Facts of a host that only the agent's process knows. */
export interface Present {
  /** Reason why the host can run no job. */
  unfit?: string | undefined
  /** Facts that the gateway has not confirmed. */
  facts?: MachineFacts | undefined
  version: string
}

/** Returns the next message. Pure. */
export function beatOf({ sequence, order, freed }: HostState, { unfit, facts, version }: Present): BeatRequest {
  return {
    sequence: sequence + 1,
    ...(order === undefined ? defined({ freed }) : { running: order.config.launch }),
    ...defined({ unfit }),
    ...(facts !== undefined && { facts, version }),
  }
}

/** Returns true if the gateway may hold the answer to a message until there is a job. Pure. */
export function isHeld({ running, unfit }: BeatRequest): boolean {
  return running === undefined && unfit === undefined
}

/** Next step of a host after an answer. */
export interface Reaction {
  /** Sealed boot config of the job that it takes. */
  takes?: string
  /** True if it ends its run now. */
  ends: boolean
}

/** Returns what a host does about the answer to a message. Pure. @param leaseSeconds what is left of the answer's lease */
export function reactionTo(answer: BeatResponse, beat: BeatRequest, leaseSeconds: number): Reaction {
  const ends = beat.running !== undefined && answer.stop === beat.running
  // A job that it can't run, or would have to end at once, is offered again.
  const isReady = isHeld(beat) && leaseSeconds > LEASE_END_SECONDS
  return { ends, ...(isReady && answer.next !== undefined && { takes: answer.next }) }
}

/** Returns the time until the next message if nothing changes, seconds. Pure. */
export function secondsUntilNext(beat: BeatRequest): number {
  if (beat.running !== undefined) return BEAT_SECONDS
  return isHeld(beat) ? WAITING_SECONDS : UNFIT_SECONDS
}
