import type { Clock } from "../apis/clock.ts"
import type { PrivateTargets } from "../outbound/public-fetch.ts"
import type { Message } from "./message.ts"
import { receiverFault } from "./receiver.ts"
import type { Receiver } from "./secret.ts"
import { signedHeaders } from "./signature.ts"

/** Outcome of a request to a receiver. No part of it comes from the response's body, its headers or the address. */
export interface SendOutcome {
  /** `gone`: the receiver answered 410. */
  is: "delivered" | "failed" | "gone"
  statusCode?: number
  durationMs: number
  /** Cause of the failure. */
  error?: string
}

/** Parts of a request that are the same for all webhooks. */
export interface SendOptions {
  /** Sends the request. It must reject addresses that users may not reach. */
  send: typeof fetch
  /** Receivers outside of the internet, to which requests without TLS are allowed too. */
  privateTargets: PrivateTargets
  clock: Clock
  /** Default 15. */
  timeoutSeconds?: number | undefined
  version: string
}

/** Sends a message once. Redirects count as failures. It never rejects, except with the signal's reason. */
export async function sendMessage(
  { id, body, contentType }: Message & { id: string },
  { url, secrets }: Receiver,
  { send, privateTargets, clock, timeoutSeconds = 15, version }: SendOptions,
  signal: AbortSignal,
): Promise<SendOutcome> {
  const startedAt = clock.monotonic()
  const durationMs = (): number => Math.round((clock.monotonic() - startedAt) * 1000)
  const timeout = AbortSignal.timeout(timeoutSeconds * 1000)
  try {
    const fault = receiverFault(url, privateTargets)
    if (fault !== undefined) throw new Unreachable(`url ${fault}`)
    const headers = { ...signedHeaders(id, body, { secrets, now: clock.now() }), "content-type": contentType }
    const response = await send(url, {
      method: "POST",
      body,
      headers: { ...headers, "user-agent": `berth/${version}` },
      redirect: "manual",
      signal: AbortSignal.any([signal, timeout]),
    })
    // The content is not read: it could be a page of an internal service.
    await response.body?.cancel().catch(() => undefined)
    return { ...outcomeOf(response.status), statusCode: response.status, durationMs: durationMs() }
  } catch (error) {
    signal.throwIfAborted()
    const cause = timeout.aborted ? `no response within ${timeoutSeconds} s` : causeOf(error)
    return { is: "failed", durationMs: durationMs(), error: cause }
  }
}

function outcomeOf(status: number): Pick<SendOutcome, "is" | "error"> {
  if (status >= 200 && status < 300) return { is: "delivered" }
  if (status === 410) return { is: "gone", error: "the receiver answered 410 Gone" }
  if (status >= 300 && status < 400)
    return { is: "failed", error: `the receiver answered ${status}: Berth follows no redirect. Set the final address` }
  return { is: "failed", error: `the receiver answered ${status}` }
}

/** Failure whose message may be shown. */
class Unreachable extends Error {}

/** Texts of frequent failures. Messages of Node.js contain addresses of internal hosts. */
const CAUSES: Record<string, string> = {
  PrivateAddress: "the receiver has no public address: ask an operator of Berth to allow it (docs/webhooks.md)",
  ENOTFOUND: "the receiver's host was not found",
  EAI_AGAIN: "the receiver's host was not found: the name server did not answer",
  ECONNREFUSED: "the receiver refused the connection",
  ECONNRESET: "the receiver closed the connection",
  UND_ERR_SOCKET: "the receiver closed the connection",
  UND_ERR_CONNECT_TIMEOUT: "no connection to the receiver",
  ETIMEDOUT: "no connection to the receiver",
}

const TLS_CODES = /^(ERR_TLS_|ERR_SSL_|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|EPROTO)/

function causeOf(error: unknown): string {
  if (error instanceof Unreachable) return error.message
  const codes = codesOf(error)
  const known = codes.find((code) => CAUSES[code] !== undefined)
  if (known !== undefined) return CAUSES[known] ?? known
  const tls = codes.find((code) => TLS_CODES.test(code))
  if (tls !== undefined) return `the receiver's certificate or TLS was not accepted (${tls})`
  return `the request failed${codes[0] === undefined ? "" : ` (${codes[0]})`}`
}

/** Returns the codes of an error and its causes. */
function codesOf(error: unknown): string[] {
  if (!(error instanceof Error)) return []
  const { code } = error as { code?: unknown }
  const nested = error instanceof AggregateError ? error.errors.flatMap(codesOf) : []
  return [
    ...(typeof code === "string" && /^[A-Za-z0-9_]+$/.test(code) ? [code] : []),
    ...codesOf(error.cause),
    ...nested,
  ]
}
