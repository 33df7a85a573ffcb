import { type Clock, timestamp } from "../../core/apis/clock.ts"
import { type AgentStatus, isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { isConflict, isNotFound } from "../../core/kube/errors.ts"
import { bootConfig, sealBootConfig } from "../../core/protocol/messages.ts"
import { NEXT_WAIT_SECONDS, type NextRequest, type NextResponse } from "../../core/protocol/protocol.ts"
import { idlenessOf } from "../../core/reuse/reuse.ts"
import { badRequest } from "../http/problem.ts"
import type { Launches } from "./launches.ts"
import { changesTooFast, refusal, WRITE_TRIES } from "./refusal.ts"

/** Next step of the gateway for a VM that asks for another job. */
export type NextStep =
  /** Its finish is not stored, so its job has not ended. */
  | { is: "tooEarly" }
  /** The agent's status has to be written, in the version of the Launch that was read. Then decide again. */
  | { is: "write"; agent: AgentStatus }
  /** The VM gets the boot config of this Launch, as often as it asks for it. */
  | { is: "handOver"; to: StoredLaunch }
  /** An agent has registered for the Launch that has the VM. No later request gets its token. */
  | { is: "taken" }
  /** No job can have the VM, which powers off. */
  | { is: "powerOff" }
  /** No job has the VM yet. Decide again once the Launch has changed. */
  | { is: "wait" }

/**
 * Returns the next step for a VM that asks for another job. Pure. A VM is handed over, leaves or is unfit by the first
 * write of its Launch: each needs the version that was read, so the others see it and decide again.
 * @param launch the VM's own one, whose agent has signed the request
 * @param successor the Launch that `status.handedTo` names, read live; undefined if there is none or it is deleted
 */
export function nextStep(
  launch: StoredLaunch,
  { unfit, isLeaving }: Pick<NextRequest, "unfit" | "isLeaving">,
  successor: StoredLaunch | undefined,
  now: Date,
): NextStep {
  const agent = launch.status?.agent
  if (agent?.finish === undefined) return { is: "tooEarly" }
  if (launch.status?.handedTo !== undefined) return unfit === undefined ? handOver(successor) : { is: "powerOff" }
  const idleness = idlenessOf(launch)
  if (idleness.is === "none" || idleness.is === "debug") return { is: "powerOff" }
  const time = timestamp(now)
  const write = (news: Partial<AgentStatus>): NextStep => ({
    is: "write",
    agent: { ...agent, ...news, lastHeartbeatTime: time },
  })
  if (unfit !== undefined) return write({ unfit })
  if (isLeaving === true) return write({ leaveTime: time })
  return idleness.is === "cleaning" ? write({ idleTime: time }) : { is: "wait" }
}

function handOver(successor: StoredLaunch | undefined): NextStep {
  if (successor?.status?.agent !== undefined) return { is: "taken" }
  const { spec, metadata } = successor ?? {}
  const isEnding = spec?.ended === true || metadata?.deletionTimestamp !== undefined
  return successor === undefined || isOver(successor) || isEnding
    ? { is: "powerOff" }
    : { is: "handOver", to: successor }
}

export interface NextOptions {
  launches: Pick<Launches, "get" | "read" | "patchAgentStatus" | "untilChanged">
  bootstrapKey: Uint8Array
  clock: Clock
  logger: Logger
}

/**
 * Answers a VM that asks for another job: at once, or after a wait of NEXT_WAIT_SECONDS at most for a change of its
 * Launch. The wait holds nothing but the connection.
 * @param found the VM's Launch, cached or live
 * @param end ends the wait: the VM has closed the connection, or the server stops
 * @throws Problem 400 before the finish is stored, 410 once another agent has the VM
 */
export async function answerNext(
  found: StoredLaunch,
  request: NextRequest,
  options: NextOptions,
  end: AbortSignal,
): Promise<NextResponse> {
  const { clock, launches } = options
  const late = new AbortController()
  const cancel = clock.setTimer(NEXT_WAIT_SECONDS, () => late.abort())
  const signal = AbortSignal.any([end, late.signal])
  try {
    let launch = found
    for (;;) {
      const { step, launch: current } = await settle(launch, request, options)
      if (step.is !== "wait") return await answerOf(step, current, options)
      if (!(await isChanged(launches, current, signal))) return { isAwaited: true }
      launch = launches.get(current.metadata.name) ?? (await live(current, options))
    }
  } finally {
    cancel()
  }
}

/** Waits for a change of the Launch. Returns false if the signal came first. */
async function isChanged(
  launches: NextOptions["launches"],
  launch: StoredLaunch,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await launches.untilChanged(launch, signal)
    return true
  } catch (error) {
    if (signal.aborted) return false
    throw error
  }
}

type Settled = { step: Exclude<NextStep, { is: "write" }>; launch: StoredLaunch }

/** Decides and writes, until there is nothing to write. */
async function settle(found: StoredLaunch, request: NextRequest, options: NextOptions): Promise<Settled> {
  let launch = found
  let isLive = false
  for (let tries = 0; tries < WRITE_TRIES; ) {
    const step = await decide(launch, request, options)
    if (step.is === "tooEarly" && !isLive) {
      // Another replica may have stored the finish a moment ago.
      launch = await live(launch, options)
      isLive = true
      continue
    }
    if (step.is !== "write") return { step, launch }
    tries++
    const written = await write(launch, step.agent, options)
    launch = written ?? (await live(launch, options))
    isLive = true
  }
  throw changesTooFast()
}

async function decide(launch: StoredLaunch, request: NextRequest, { launches, clock }: NextOptions): Promise<NextStep> {
  const heir = launch.status?.handedTo
  // Live: a cached one may lack the agent that has registered.
  const successor = heir === undefined ? undefined : await launches.read(heir)
  return nextStep(launch, request, successor, clock.now())
}

/** Returns undefined if the Launch has changed or was deleted in the meantime. */
async function write(
  launch: StoredLaunch,
  agent: AgentStatus,
  { launches }: NextOptions,
): Promise<StoredLaunch | undefined> {
  try {
    return await launches.patchAgentStatus(launch, agent)
  } catch (error) {
    if (isConflict(error) || isNotFound(error)) return undefined
    throw error
  }
}

async function live({ metadata: { name } }: StoredLaunch, { launches }: NextOptions): Promise<StoredLaunch> {
  const launch = await launches.read(name)
  if (launch === undefined) throw refusal("unknown-launch", "There is no such Launch: power off.")
  return launch
}

async function answerOf(
  step: Settled["step"],
  { metadata: { name }, status }: StoredLaunch,
  { bootstrapKey, logger }: NextOptions,
): Promise<NextResponse> {
  switch (step.is) {
    case "tooEarly":
      throw badRequest("The finish of the run is not stored yet: report it first.")
    case "taken":
      throw refusal("launch-not-current", "Another agent has the VM of this Launch now: power off.")
    case "handOver": {
      const { to } = step
      logger.info({ launch: name, next: to.metadata.name }, "an idle VM gets its next job")
      const next = await sealBootConfig(bootConfig(to, bootstrapKey), status?.agent?.encryptionKey ?? "")
      return { next, isAwaited: false }
    }
    case "powerOff":
      return { isAwaited: false }
    case "wait":
      return { isAwaited: true }
  }
}
