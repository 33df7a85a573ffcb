import { timestamp } from "../../core/apis/clock.ts"
import { type ConditionUpdate, conditionOnceTrue, findCondition } from "../../core/apis/conditions.ts"
import { ConnectionCondition, ConnectionReason, type StoredConnection } from "../../core/apis/connection.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { toVmSettings } from "../../core/apis/vm-settings.ts"
import { findCooldowns, widestCooldown } from "../../market/placement/cooldowns.ts"
import { launchHistory } from "../../market/placement/ledger.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import type { Cooldown } from "../../market/router/cooldown.ts"

/**
 * Returns the widest current cooldown of a connection, the same that jobs see. Undefined if at most single offers rest.
 * @param launches the connection's own
 * @param credentials version of the current credentials
 */
export function connectionCooldown(
  { metadata, spec, status }: StoredConnection,
  launches: readonly StoredLaunch[],
  credentials: string | undefined,
  now: Date,
): Cooldown | undefined {
  const { namespace = "", name } = metadata
  const account = status?.account
  const own = {
    cloud: spec.type,
    connection: name,
    ...defined({ account, credentials }),
    settings: toVmSettings(spec),
  }
  return widestCooldown(findCooldowns(launchHistory(launches), { namespace, launchAccounts: [own] }, now, JOB_DEFAULTS))
}

/** Returns the condition of a cooldown, once there was one. */
export function cooldownCondition(cooldown: Cooldown | undefined): ConditionUpdate {
  const cause =
    cooldown === undefined
      ? { reason: ConnectionReason.NoCooldown, message: "the cooldown has ended" }
      : { reason: ConnectionReason.LaunchesRejected, message: messageOf(cooldown) }
  return conditionOnceTrue(ConnectionCondition.CoolingDown, cooldown !== undefined, cause)
}

function messageOf({ until, cause, ...scope }: Cooldown): string {
  const { region, quota, family, instanceType, gpu, provisioning } = scope
  const only = [
    ...(region === undefined ? [] : [`in ${region}`]),
    ...(quota === undefined ? [] : [`of the quota ${quota}`]),
    ...(instanceType === undefined ? [] : [`of type ${instanceType}`]),
    ...(family === undefined ? [] : [`of family ${family}`]),
    ...(gpu === undefined ? [] : [gpu ? "with GPUs" : "without GPUs"]),
    ...(provisioning === "spot" ? ["on spot"] : []),
  ]
  const what = ["no VM", ...only].join(" ")
  const { group = "the cloud rejected launches", detail, remedy } = cause ?? {}
  const why = [group, ...(detail === undefined ? [] : [detail])].join(": ")
  return [
    `${why}; Berth launches ${what} with this connection until ${timestamp(until)}`,
    ...(remedy === undefined ? [] : [remedy]),
  ].join("; ")
}

/** Returns true if a change of a Launch may begin or end a cooldown of its connection. */
export function changesCooldown(
  old: StoredLaunch | undefined,
  current: StoredLaunch,
  connection: StoredConnection | undefined,
): boolean {
  if (isRejection(current)) return old === undefined || !isRejection(old)
  const isCooling = findCondition(connection?.status?.conditions, ConnectionCondition.CoolingDown)?.status === "True"
  return isCooling && current.status?.vm !== undefined && old?.status?.vm === undefined
}

function isRejection({ status }: StoredLaunch): boolean {
  return status?.refusal !== undefined && status.refusal.class !== "Capacity"
}
