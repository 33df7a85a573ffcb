import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { type Host, MACHINE_LEASE, type MachineLaunch, OWN_CLOUD, type StoredMachine } from "../../core/apis/machine.ts"
import { leaseEnd, machineOf, runOn, WRITE_BEAT_SECONDS } from "../../core/machines/machine.ts"
import type { BeatRequest, JoinClaims, JoinRequest } from "../../core/protocol/machines.ts"
import type { Refusal } from "../../core/protocol/protocol.ts"
import { isCurrent } from "./report.ts"

/** Machine that a host has joined as. */
export type JoinedMachine = StoredMachine & { status: { host: Host } }

/** Next step of the gateway for a host that joins. */
export type JoinStep =
  | { is: "write"; host: Host }
  /** It has joined already: its first answer was lost. */
  | { is: "joined"; host: Host }
  | { is: "refused"; type: Refusal; detail: string }
  /** Another host may still run a job of this machine, until this time at most. */
  | { is: "held"; until: Date }

/** Facts for a join besides the machine and the host. */
export interface JoinFacts {
  now: Date
  /** Reason for which the installation lets no host join as a machine. Absent: it does. */
  whyForbidden?: string | undefined
}

/**
 * Returns the next step for a host that joins with a token of Berth's for this machine. Pure.
 * @param machine undefined if there is none by this name
 */
export function joinStep(
  machine: StoredMachine | undefined,
  claims: JoinClaims,
  request: JoinRequest,
  { now, whyForbidden }: JoinFacts,
): JoinStep {
  const { metadata, spec, status } = machine ?? {}
  if (machine === undefined || metadata?.uid !== claims.uid || metadata.deletionTimestamp !== undefined) {
    return refused("unknown-machine", "The machine was removed. Make another one with: berth machine join NAME")
  }
  const host = status?.host
  if (host?.joinNumber === claims.number && hasKeys(host, request)) return { is: "joined", host }
  if (whyForbidden !== undefined) return refused("machines-forbidden", `No other host joins: ${whyForbidden}.`)
  if (claims.expires * 1000 <= now.getTime()) {
    return refused("join-token-expired", `The join token has expired. ${ANOTHER_TOKEN}`)
  }
  if (claims.number !== spec?.joinNumber || (host?.joinNumber ?? 0) >= claims.number) {
    return refused("join-token-used", `The join token was used, or a later one was made. ${ANOTHER_TOKEN}`)
  }
  const run = runOn(machine)
  const isHeld = run.is === "running" || run.is === "ending"
  if (host !== undefined && isHeld) return { is: "held", until: leaseEnd(host) }
  const { signingKey, encryptionKey, version, facts } = request
  const time = timestamp(now)
  return {
    is: "write",
    host: {
      ...{ joinNumber: claims.number, joinTime: time, signingKey, encryptionKey, version, facts },
      ...{ sequence: 0, lastHeartbeatTime: time, leaseSeconds: wantedLease(machine) },
      // Without it, the heartbeat of this host would make the run of the former one look alive.
      ...(run.is === "over" && { freed: run.launch.name, freedTime: timestamp(new Date(run.endTime)) }),
    },
  }
}

const ANOTHER_TOKEN = "Get another one with: berth machine join NAME --again"

function refused(type: Refusal, detail: string): JoinStep {
  return { is: "refused", type, detail }
}

function hasKeys(host: Host, { signingKey, encryptionKey }: JoinRequest): boolean {
  return host.signingKey === signingKey && host.encryptionKey === encryptionKey
}

/** Next step of the gateway for a host's heartbeat. */
export type BeatStep =
  /** The host's status has to be written, in the version of the Machine that was read. Then decide again. */
  | { is: "write"; host: Host }
  /** The host gets the boot config of this Launch, as often as it asks for it. */
  | { is: "order"; launch: StoredLaunch }
  /** There is nothing to wait for. The host ends the run of the Launch `stop`. */
  | { is: "answer"; stop?: string }
  /** There is no job for the host yet. Decide again once the Machine has changed. */
  | { is: "wait" }

/** Returns the Launch that `beatStep` needs live: the one that has the machine, for a host that waits for a job. */
export function awaitedLaunch({ status }: StoredMachine, { running, unfit }: BeatRequest): string | undefined {
  const { launch, host } = status ?? {}
  const isFree = launch === undefined || launch.name === host?.freed
  return isFree || running !== undefined || unfit !== undefined ? undefined : launch.name
}

/**
 * Returns the next step for a heartbeat. Pure. Each write needs the version of the Machine that was read. So no step follows
 * from a state in which the operator has given the machine to another Launch in the meantime.
 * @param machine whose host has signed the heartbeat
 * @param launch the Launch `awaitedLaunch`, read live; undefined if there is none or it is deleted
 * @param received time at which the heartbeat came
 */
export function beatStep(
  machine: JoinedMachine,
  beat: BeatRequest,
  launch: StoredLaunch | undefined,
  received: Date,
): BeatStep {
  const { host, launch: assigned } = machine.status
  const next = withBeat(machine, beat, received)
  const isNews = !isDeepStrictEqual(next, host)
  const isLate = beat.sequence <= host.sequence
  if (isLate && isNews) return { is: "answer" }
  if (!isLate && (isNews || isDue(host, received))) {
    const lastHeartbeatTime = latest(host.lastHeartbeatTime, received)
    const leaseSeconds = grantedLease(machine, received)
    return { is: "write", host: { ...next, sequence: beat.sequence, lastHeartbeatTime, leaseSeconds } }
  }
  // One that can have no job waits for none: an agent that is stopped sends no other message, and others soon look again.
  if (beat.running !== undefined || beat.unfit !== undefined) return answerTo(beat, assigned)
  const name = awaitedLaunch(machine, beat)
  if (name === undefined) return { is: "wait" }
  // The host has the order on its disk. It says so, or that nothing of it is left.
  if (launch?.status?.agent !== undefined) return { is: "wait" }
  // No agent can register for it any more, so nothing of it will ever run.
  if (launch === undefined || !isCurrent(launch) || !isOn(machine, launch)) {
    const { running: _, ...others } = host
    return { is: "write", host: { ...others, freed: name, freedTime: timestamp(received) } }
  }
  if (assigned?.endTime !== undefined) return { is: "wait" }
  // The operator gives the machine to no other Launch from this write on, even after it has asked for the end of this one.
  if (host.running !== name) return { is: "write", host: { ...host, running: name } }
  return { is: "order", launch }
}

/** Returns the answer to a host that has a run, or can have none. */
function answerTo({ running }: BeatRequest, assigned: MachineLaunch | undefined): BeatStep {
  const isWanted = running === undefined || (assigned?.name === running && assigned.endTime === undefined)
  return isWanted ? { is: "answer" } : { is: "answer", stop: running }
}

/** Returns what a host reports of itself, with the rest of its status. */
function withBeat({ status: { host, launch } }: JoinedMachine, beat: BeatRequest, received: Date): Host {
  // The host may not have got the order that the gateway has written down.
  const given = host.running === launch?.name && beat.freed !== host.running ? host.running : undefined
  const { running = given, unfit, facts = host.facts, version = host.version } = beat
  const { running: _, unfit: __, ...others } = host
  // A host may repeat an earlier one, after the gateway has written down that a later Launch never began.
  const isFreed = beat.freed !== undefined && beat.freed === launch?.name && ![host.freed, running].includes(beat.freed)
  return {
    ...others,
    ...defined({ running, unfit }),
    ...{ facts, version },
    ...(isFreed && { freed: beat.freed, freedTime: timestamp(received) }),
  }
}

/** The operator sees only heartbeats that are written. One of a replica whose clock is ahead says nothing about its age. */
function isDue({ lastHeartbeatTime }: Host, received: Date): boolean {
  const age = secondsBetween(lastHeartbeatTime, received)
  return age < 0 || age >= WRITE_BEAT_SECONDS
}

/** The clocks of two replicas differ. A heartbeat never makes a lease end earlier. */
function latest(written: string, received: Date): string {
  return Date.parse(written) > received.getTime() ? written : timestamp(received)
}

/** Returns true if a Launch was made for this machine. */
function isOn({ metadata }: StoredMachine, { spec: { offer, job } }: StoredLaunch): boolean {
  const { namespace, name } = machineOf(offer.instanceType, job.namespace)
  return offer.cloud === OWN_CLOUD && namespace === metadata.namespace && name === metadata.name
}

function wantedLease({ spec }: StoredMachine): number {
  return spec.leaseSeconds ?? MACHINE_LEASE.default
}

/**
 * Returns the lease to write with a heartbeat, seconds. A shorter one counts only after the end of the present one: the
 * answer that shortens it may not reach the host, which then runs its job until the end that it knows.
 */
function grantedLease(machine: JoinedMachine, received: Date): number {
  const { lastHeartbeatTime, leaseSeconds } = machine.status.host
  const left = leaseSeconds - secondsBetween(lastHeartbeatTime, latest(lastHeartbeatTime, received))
  return Math.max(wantedLease(machine), Math.ceil(left))
}

/**
 * Returns the seconds of the lease for an answer. It counts from the written heartbeat: the operator knows no other.
 */
export function leaseToAnswer(machine: JoinedMachine, now: Date): number {
  const { lastHeartbeatTime, leaseSeconds } = machine.status.host
  const age = Math.max(0, secondsBetween(lastHeartbeatTime, now))
  return Math.max(0, Math.floor(Math.min(leaseSeconds, wantedLease(machine)) - age))
}
