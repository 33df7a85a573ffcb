import { request } from "undici"
import { type Clock, timestamp } from "../core/apis/clock.ts"
import type { Logger } from "../core/apis/logger.ts"
import type { SpotCloud } from "../core/protocol/protocol.ts"
import { waitUnlessAborted } from "./timers.ts"

/** Delay between two requests, seconds, as AWS recommends. */
const POLL_SECONDS = 5

/** Time from a notice to the VM's end, and the part of it that uploads and the last report have, seconds. */
const NOTICES: Record<SpotCloud, { seconds: number; flushSeconds: number }> = {
  aws: { seconds: 120, flushSeconds: 30 },
  gcp: { seconds: 30, flushSeconds: 10 },
  azure: { seconds: 30, flushSeconds: 10 },
}

const ANSWER_MS = 3000

/**
 * Lifetime of a token of AWS' metadata service, seconds: at most 6 hours. Berth requests the next one before the end.
 */
const TOKEN_SECONDS = 21_600

/** Address at which every cloud serves a VM's metadata. */
const METADATA_URL = "http://169.254.169.254"

export interface PreemptionOptions {
  cloud: SpotCloud
  clock: Clock
  logger: Logger
  /** URL of the metadata service. Default: the address that all clouds use. */
  url?: string
}

/** Announcement of a VM's end. */
export interface PreemptionNotice {
  /** Time at which the agent read the notice, RFC 3339. */
  time: string
  /** Seconds from then for the container. The VM's end leaves time for uploads after it. */
  containerSeconds: number
}

/** Returns true if the metadata service reports a preemption. Rejects if it does not answer. */
type Ask = () => Promise<boolean>

/** Returns the notice that the agent reads now. It may be as old as the delay between two requests. */
function noticeNow(cloud: SpotCloud, clock: Clock): PreemptionNotice {
  const { seconds, flushSeconds } = NOTICES[cloud]
  return { time: timestamp(clock.now()), containerSeconds: seconds - POLL_SECONDS - flushSeconds }
}

/**
 * Resolves with the cloud's preemption notice; undefined if the signal is aborted before. Requests that fail are
 * retried. Without an answer the VM just ends without a notice.
 */
export async function preemptionNotice(
  options: PreemptionOptions,
  signal: AbortSignal,
): Promise<PreemptionNotice | undefined> {
  const { cloud, clock, logger, url = METADATA_URL } = options
  const ask = ASK[cloud](url, clock)
  for (let failures = 0; !signal.aborted; ) {
    try {
      if (await ask()) return noticeNow(cloud, clock)
      failures = 0
    } catch (error) {
      // Log it once, because there are twelve requests a minute.
      if (failures++ === 0) logger.warn({ err: error }, "failed to ask the metadata service about preemption; retrying")
    }
    await waitUnlessAborted(clock, POLL_SECONDS, signal)
  }
  return undefined
}

const ASK: Record<SpotCloud, (url: string, clock: Clock) => Ask> = { aws: askAws, gcp: askGcp, azure: askAzure }

/**
 * Asks for `spot/instance-action`, by IMDSv2. It exists (404 before) once the instance will be stopped or terminated
 * (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
 */
function askAws(url: string, clock: Clock): Ask {
  let token: { value: string; until: number } | undefined
  return async () => {
    if (token === undefined || clock.monotonic() > token.until) {
      const headers = { "x-aws-ec2-metadata-token-ttl-seconds": String(TOKEN_SECONDS) }
      const value = await get(`${url}/latest/api/token`, { method: "PUT", headers })
      token = { value: value ?? "", until: clock.monotonic() + TOKEN_SECONDS / 2 }
    }
    const headers = { "x-aws-ec2-metadata-token": token.value }
    try {
      return (await get(`${url}/latest/meta-data/spot/instance-action`, { method: "GET", headers })) !== undefined
    } catch (error) {
      // The token may be invalid: request another one.
      token = undefined
      throw error
    }
  }
}

/**
 * Asks for the value, which is `TRUE` after preemption
 * (https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption).
 */
function askGcp(url: string): Ask {
  const options = { method: "GET" as const, headers: { "metadata-flavor": "Google" } }
  return async () => (await get(`${url}/computeMetadata/v1/instance/preempted`, options)) === "TRUE"
}

/** Asks for events of type Preempt (https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events). */
function askAzure(url: string): Ask {
  const options = { method: "GET" as const, headers: { metadata: "true" } }
  return async () => {
    const answer = await get(`${url}/metadata/scheduledevents?api-version=2020-07-01`, options)
    const { Events = [] } = JSON.parse(answer ?? "{}") as { Events?: { EventType?: string }[] }
    return Events.some(({ EventType }) => EventType === "Preempt")
  }
}

/** Returns the answer's text; undefined for 404. */
async function get(
  url: string,
  options: { method: "GET" | "PUT"; headers: Record<string, string> },
): Promise<string | undefined> {
  const { statusCode, body } = await request(url, { ...options, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS })
  const text = await body.text()
  if (statusCode === 200) return text.trim()
  if (statusCode === 404) return undefined
  throw new Error(`the metadata service answers ${statusCode} to ${options.method} ${url}`)
}
