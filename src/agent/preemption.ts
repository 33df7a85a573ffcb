import { request } from "undici"
import { type Clock, timestamp } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { SpotCloud } from "./protocol.ts"
import { waitUnlessAborted } from "./timers.ts"

/** AWS says "every 5 seconds"; a notice comes 2 minutes (AWS) or 30 seconds (Google, Azure) before the end. */
const POLL_SECONDS = 5

const ANSWER_MS = 3000

/** A token of AWS' metadata service may last for 6 hours; ours is asked for before that. */
const TOKEN_SECONDS = 21_600

/** Where every cloud serves its metadata to a VM. */
const METADATA_URL = "http://169.254.169.254"

export interface PreemptionOptions {
  cloud: SpotCloud
  clock: Clock
  logger: Logger
  /** Of the metadata service; default: the address that all clouds have it at. */
  url?: string
}

/** Whether the metadata service says now that the VM is taken back. Rejects when it does not answer. */
type Ask = () => Promise<boolean>

/**
 * Resolves with the time (RFC 3339) of the cloud's notice that it takes this VM back, undefined when the signal is
 * aborted before. A metadata service that can't be asked is asked again: without it the VM just ends without a notice.
 */
export async function preemptionNotice(options: PreemptionOptions, signal: AbortSignal): Promise<string | undefined> {
  const { cloud, clock, logger, url = METADATA_URL } = options
  const ask = ASK[cloud](url, clock)
  for (let failures = 0; !signal.aborted; ) {
    try {
      if (await ask()) return timestamp(clock.now())
      failures = 0
    } catch (error) {
      // Told once: it is asked twelve times a minute.
      if (failures++ === 0) logger.warn({ err: error }, "the metadata service doesn't tell of preemptions")
    }
    await waitUnlessAborted(clock, POLL_SECONDS, signal)
  }
  return undefined
}

const ASK: Record<SpotCloud, (url: string, clock: Clock) => Ask> = { aws: askAws, gcp: askGcp, azure: askAzure }

/**
 * `spot/instance-action` is there (404 before) once the instance is to be stopped or terminated
 * (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html), asked by IMDSv2.
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
      // Whatever is wrong with the token: another one is asked for.
      token = undefined
      throw error
    }
  }
}

/** `TRUE` once it is preempted (https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption). */
function askGcp(url: string): Ask {
  const options = { method: "GET" as const, headers: { "metadata-flavor": "Google" } }
  return async () => (await get(`${url}/computeMetadata/v1/instance/preempted`, options)) === "TRUE"
}

/** An event of type Preempt (https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events). */
function askAzure(url: string): Ask {
  const options = { method: "GET" as const, headers: { metadata: "true" } }
  return async () => {
    const answer = await get(`${url}/metadata/scheduledevents?api-version=2020-07-01`, options)
    const { Events = [] } = JSON.parse(answer ?? "{}") as { Events?: { EventType?: string }[] }
    return Events.some(({ EventType }) => EventType === "Preempt")
  }
}

/** The answer's text; undefined for 404. */
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
