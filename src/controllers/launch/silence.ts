import { secondsBetween } from "../../apis/clock.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"

/** When a VM that is not heard counts as lost. All durations are in seconds. */
export interface SilenceSettings {
  /** How long an agent may be silent. */
  silenceSeconds: number
  /** The gateway counts as receiving while some heartbeat was written within this time. */
  receivingSeconds: number
  /** At most this share of the VMs that are heard of (but always one) is given up per `silenceSeconds`. */
  brakeShare: number
}

export const SILENCE_DEFAULTS: SilenceSettings = { silenceSeconds: 600, receivingSeconds: 150, brakeShare: 0.1 }

/** Since when, without a gap, the gateway has provably received heartbeats; undefined: it does not now. */
export type ReceivingSince = Date | undefined

/** When the agent was heard last; undefined before it has registered. */
function heardAt(launch: StoredLaunch): Date | undefined {
  const { agent } = launch.status ?? {}
  return agent === undefined ? undefined : new Date(agent.lastHeartbeatTime ?? agent.registrationTime)
}

/**
 * Follows whether the gateway receives, from what it wrote to any Launch. A gap (an outage of the façade, a restart of
 * this process) starts the count anew, so that afterwards every agent has the whole time to be heard again.
 */
export function receivingSince(
  before: ReceivingSince,
  launches: readonly StoredLaunch[],
  now: Date,
  settings: SilenceSettings,
): ReceivingSince {
  const isFresh = (time: Date | undefined) =>
    time !== undefined && secondsBetween(time, now) <= settings.receivingSeconds
  return launches.some((launch) => isFresh(heardAt(launch))) ? (before ?? now) : undefined
}

/**
 * The Launches whose agents were silent for too long while others were heard, the longest silent first, and no more
 * of them than the brake allows: when many fall silent at once, it is not the VMs that have failed.
 */
export function silentLaunches(
  launches: readonly StoredLaunch[],
  receiving: ReceivingSince,
  now: Date,
  settings: SilenceSettings,
): StoredLaunch[] {
  if (receiving === undefined) return []
  const watched = launches.filter((launch) => isWanted(launch) && heardAt(launch) !== undefined)
  const silent = watched.filter((launch) => {
    const heard = heardAt(launch) ?? receiving
    return secondsBetween(heard > receiving ? heard : receiving, now) >= settings.silenceSeconds
  })
  const given = launches.filter(({ status }) => {
    const loss = status?.loss
    return loss?.reason === "Silent" && secondsBetween(loss.time, now) < settings.silenceSeconds
  })
  const allowed = Math.max(1, Math.floor(watched.length * settings.brakeShare)) - given.length
  return silent.sort((a, b) => Number(heardAt(a)) - Number(heardAt(b))).slice(0, Math.max(0, allowed))
}

/** Whether nobody has said yet that this VM shall go, or has gone. */
function isWanted(launch: StoredLaunch): boolean {
  const { status, spec } = launch
  return !isOver(launch) && spec.ended !== true && status?.loss === undefined && status?.agent?.finish === undefined
}
