import { request } from "undici"
import type { MetadataNotice } from "../clouds/definition.ts"
import { DEFINITIONS, type VmCloud } from "../clouds/definitions.ts"
import { type Clock, timestamp } from "../core/apis/clock.ts"
import type { Logger } from "../core/apis/logger.ts"
import { waitUnlessAborted } from "./timers.ts"

/** Delay between two requests, seconds, as AWS recommends. The notices' `containerSeconds` are without it. */
const POLL_SECONDS = 5

const ANSWER_MS = 3000

/** Address at which every cloud serves a VM's metadata. */
const METADATA_URL = "http://169.254.169.254"

export interface PreemptionOptions {
  cloud: VmCloud
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

/** Returns the notice that a shutdown of the VM is, now; undefined on a VM whose cloud announces a preemption otherwise. */
export function shutdownNotice(cloud: VmCloud | undefined, clock: Clock): PreemptionNotice | undefined {
  const notice = cloud && DEFINITIONS[cloud].vms.spot.notice
  if (notice?.by !== "shutdown") return undefined
  return { time: timestamp(clock.now()), containerSeconds: notice.containerSeconds }
}

/**
 * Resolves with the notice of the metadata service; undefined if the signal is aborted before, or if the cloud gives none
 * there. Requests that fail are retried. Without an answer the VM just ends without a notice.
 */
export async function preemptionNotice(
  options: PreemptionOptions,
  signal: AbortSignal,
): Promise<PreemptionNotice | undefined> {
  const { cloud, clock, logger, url = METADATA_URL } = options
  const { notice } = DEFINITIONS[cloud].vms.spot
  if (notice.by !== "metadata") return undefined
  const ask = asker(notice, url, clock)
  for (let failures = 0; !signal.aborted; ) {
    try {
      if (await ask()) return { time: timestamp(clock.now()), containerSeconds: notice.containerSeconds }
      failures = 0
    } catch (error) {
      // Log it once, because there are twelve requests a minute.
      if (failures++ === 0) logger.warn({ err: error }, "failed to ask the metadata service about preemption; retrying")
    }
    await waitUnlessAborted(clock, POLL_SECONDS, signal)
  }
  return undefined
}

function asker({ path, headers, token, isIn }: MetadataNotice, url: string, clock: Clock): Ask {
  if (token === undefined) return async () => isIn(await get(`${url}${path}`, { method: "GET", headers }))
  let known: { value: string; until: number } | undefined
  const newToken = async (): Promise<string> => {
    const lifetime = { [token.lifetimeHeader]: String(token.lifetimeSeconds) }
    const value = (await get(`${url}${token.path}`, { method: "PUT", headers: lifetime })) ?? ""
    // Berth requests the next one before the end.
    known = { value, until: clock.monotonic() + token.lifetimeSeconds / 2 }
    return value
  }
  return async () => {
    const value = known !== undefined && clock.monotonic() <= known.until ? known.value : await newToken()
    try {
      return isIn(await get(`${url}${path}`, { method: "GET", headers: { ...headers, [token.header]: value } }))
    } catch (error) {
      // The token may be invalid: request another one.
      known = undefined
      throw error
    }
  }
}

/** Returns the answer's text; undefined for 404. */
async function get(
  url: string,
  options: { method: "GET" | "PUT"; headers: Readonly<Record<string, string>> },
): Promise<string | undefined> {
  const { statusCode, body } = await request(url, { ...options, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS })
  const text = await body.text()
  if (statusCode === 200) return text.trim()
  if (statusCode === 404) return undefined
  throw new Error(`the metadata service answers ${statusCode} to ${options.method} ${url}`)
}
