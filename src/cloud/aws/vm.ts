import type { Instance } from "@aws-sdk/client-ec2"
import type { CloudVmState, Vm } from "../provider.ts"
import { TAGS, tagOf } from "./tags.ts"

/**
 * What an instance's state means to us. A stopped one is there and its disk is billed, though nobody of ours stops any:
 * it must be ended like one that runs.
 */
const STATES: Readonly<Record<string, CloudVmState>> = {
  pending: "booting",
  running: "running",
  stopping: "running",
  stopped: "running",
  "shutting-down": "terminating",
  terminated: "terminated",
}

/** Why EC2 ends an instance by itself for want of capacity (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html). */
const TAKEN_BACK = [
  "Server.SpotInstanceTermination",
  "Server.SpotInstanceShutdown",
  "Server.InsufficientInstanceCapacity",
]

/** An instance as a VM; undefined when it isn't one of Berth's. */
export function vmOf(instance: Instance, region: string): Vm | undefined {
  const launch = tagOf(instance.Tags, TAGS.launch)
  const installation = tagOf(instance.Tags, TAGS.installation)
  const { InstanceId: id, LaunchTime: launched } = instance
  if (launch === undefined || installation === undefined || id === undefined || launched === undefined) return undefined
  const state = STATES[instance.State?.Name ?? ""] ?? "running"
  const ended = state === "terminated" ? terminationTime(instance.StateTransitionReason) : undefined
  const { PublicIpAddress: ipAddress } = instance
  return {
    id,
    launch,
    installation,
    region,
    state,
    createTime: launched.toISOString(),
    ...(ended !== undefined && { terminationTime: ended }),
    ...(ipAddress !== undefined && ipAddress !== "" && { ipAddress }),
    ...(TAKEN_BACK.includes(instance.StateReason?.Code ?? "") && { preempted: true }),
  }
}

/** EC2 tells the time in words only, such as "User initiated (2026-05-01 12:00:00 GMT)", and not always. */
function terminationTime(reason: string | undefined): string | undefined {
  const [, date, time] = /\((\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (?:GMT|UTC)\)/.exec(reason ?? "") ?? []
  return date === undefined ? undefined : `${date}T${time}Z`
}
