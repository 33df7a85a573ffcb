import type { Instance } from "@aws-sdk/client-ec2"
import { defined } from "../../core/apis/defined.ts"
import type { CloudVmState, Vm } from "../cloud.ts"
import { findTag, TAGS } from "./tags.ts"

/**
 * States of an instance as states of a VM. A stopped instance still exists and its disk is billed. Berth never stops
 * one; it must be terminated like a running one.
 */
const STATES: Readonly<Record<string, CloudVmState>> = {
  pending: "booting",
  running: "running",
  stopping: "running",
  stopped: "running",
  "shutting-down": "terminating",
  terminated: "terminated",
}

/**
 * Reasons of EC2 to end an instance for lack of capacity
 * (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html).
 */
const TAKEN_BACK = [
  "Server.SpotInstanceTermination",
  "Server.SpotInstanceShutdown",
  "Server.InsufficientInstanceCapacity",
]

/** Converts an instance to a VM; undefined if it isn't one of Berth's. */
export function toVm(instance: Instance, region: string): Vm | undefined {
  const launch = findTag(instance.Tags, TAGS.launch)
  const installation = findTag(instance.Tags, TAGS.installation)
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
    ...defined({ terminationTime: ended }),
    ...(ipAddress !== undefined && ipAddress !== "" && { ipAddress }),
    ...(TAKEN_BACK.includes(instance.StateReason?.Code ?? "") && { preempted: true }),
  }
}

/**
 * Parses the time from text such as "User initiated (2026-05-01 12:00:00 GMT)". EC2 has no other field for it, and does
 * not always set it.
 */
function terminationTime(reason: string | undefined): string | undefined {
  const [, date, time] = /\((\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (?:GMT|UTC)\)/.exec(reason ?? "") ?? []
  return date === undefined ? undefined : `${date}T${time}Z`
}
