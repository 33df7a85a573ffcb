import type { Readable } from "node:stream"
import { rootCertificates } from "node:tls"
import type { Static, TSchema } from "typebox"
import { type Dispatcher, request } from "undici"
import { type BackoffLimits, backoffSeconds } from "../core/apis/backoff.ts"
import { createDispatcher } from "../core/apis/dispatcher.ts"
import { type AnyMessageKind, check } from "../core/protocol/messages.ts"
import {
  type BootConfig,
  GATEWAY_PATH,
  JWS_CONTENT_TYPE,
  NEXT_WAIT_SECONDS,
  PROBLEM_TYPE_BASE,
  REFUSALS,
  type Refusal,
} from "../core/protocol/protocol.ts"

const ANSWER_TIMEOUT_MS = 30_000
const CONNECT_TIMEOUT_MS = 10_000

/** Timeout of a message that the gateway may hold until there is a job. */
const HELD_TIMEOUT_MS = NEXT_WAIT_SECONDS * 1000 + ANSWER_TIMEOUT_MS

/** Largest answer that is read, bytes. An order may have as much environment as a Job. */
const ANSWER_BYTES = 32 * 1024 * 1024

/** Final rejection by the gateway: end the run, and send nothing more. */
export class RefusedError extends Error {
  override readonly name = "RefusedError"
  readonly refusal: Refusal
  /** The gateway's own words. */
  readonly detail: string

  constructor(refusal: Refusal, detail: string) {
    super(`the gateway rejects this agent (${refusal}): ${detail}`)
    this.refusal = refusal
    this.detail = detail
  }
}

/** No valid answer of the gateway; retry later. */
export class GatewayError extends Error {
  override readonly name = "GatewayError"
  /** HTTP status, 0 if there was no answer. */
  readonly status: number
  readonly retryAfterSeconds: number | undefined

  constructor(message: string, init: { status: number; retryAfterSeconds?: number | undefined; cause?: unknown }) {
    super(message, { cause: init.cause })
    this.status = init.status
    this.retryAfterSeconds = init.retryAfterSeconds
  }
}

/**
 * Returns the delay before the n-th retry (from 0) of a message, seconds. It adds jitter to the delay that the gateway
 * asked for, because many agents may have got the same one.
 */
export function retrySeconds(error: unknown, tries: number, limits: BackoffLimits): number {
  const asked = error instanceof GatewayError ? error.retryAfterSeconds : undefined
  return (asked ?? 0) + backoffSeconds(tries + 1, limits)
}

/** Address of the gateway, and the authorities to trust about it. */
export type GatewayAddress = Pick<BootConfig, "gatewayUrl" | "gatewayCa">

/** One message. */
export interface Message {
  kind: AnyMessageKind
  /** Path below the gateway's, with the kind. */
  path: string
  /** Bearer token. */
  token: string
  /** The message as a compact JWS. */
  jws: string
  signal?: AbortSignal
  /** True if the gateway may hold the answer until there is a job. */
  isHeld?: boolean
}

/** Connection to the gateway. Every method rejects with RefusedError or GatewayError. */
export class GatewayConnection {
  readonly #url: string
  readonly #dispatcher: Dispatcher
  /** Connections for answers of any size. */
  readonly #large: Dispatcher

  constructor({ gatewayUrl, gatewayCa }: GatewayAddress) {
    this.#url = gatewayUrl
    const trust = gatewayCa === undefined ? {} : { ca: [...rootCertificates, gatewayCa] }
    const options = {
      connect: { timeout: CONNECT_TIMEOUT_MS, ...trust },
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
    }
    this.#dispatcher = createDispatcher({ ...options, maxResponseSize: ANSWER_BYTES })
    this.#large = createDispatcher(options)
  }

  /** Sends a message. Returns its answer. */
  async ask<T extends TSchema>(message: Message, schema: T): Promise<Static<T>> {
    const answer = await this.#read(await this.#send(message, this.#dispatcher))
    if (answer.status !== 200) throw failure(message.kind, answer)
    try {
      return check(schema, JSON.parse(answer.text), `the gateway's answer to ${message.kind}`)
    } catch (cause) {
      const why = `the gateway's answer to ${message.kind} does not match the protocol`
      throw new GatewayError(why, { status: 200, cause })
    }
  }

  /** Sends a message whose answer are bytes. The stream ends with an error if it breaks off. */
  async stream(message: Message): Promise<Readable> {
    const answer = await this.#send(message, this.#large)
    if (answer.statusCode !== 200) throw failure(message.kind, await this.#read(answer))
    return answer.body
  }

  /** Aborts pending messages. */
  async close(): Promise<void> {
    await Promise.all([this.#dispatcher.destroy(), this.#large.destroy()])
  }

  async #send({ path, token, jws, signal, isHeld }: Message, dispatcher: Dispatcher): Promise<Dispatcher.ResponseData> {
    const url = `${this.#url.replace(/\/+$/, "")}${GATEWAY_PATH}/${path}`
    const headers = { "content-type": JWS_CONTENT_TYPE, authorization: `Bearer ${token}` }
    const limits = {
      ...(signal !== undefined && { signal }),
      ...(isHeld === true && { headersTimeout: HELD_TIMEOUT_MS }),
    }
    return await this.#answered(request(url, { method: "POST", headers, body: jws, dispatcher, ...limits }))
  }

  async #read({ statusCode, headers, body }: Dispatcher.ResponseData): Promise<Answer> {
    const header = (name: string): string | undefined => [headers[name]].flat()[0]
    return {
      status: statusCode,
      text: await this.#answered(body.text()),
      contentType: header("content-type") ?? "",
      retryAfter: header("retry-after"),
    }
  }

  async #answered<Result>(answer: Promise<Result>): Promise<Result> {
    try {
      return await answer
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause)
      throw new GatewayError(`the gateway at ${this.#url} does not answer: ${why}`, { status: 0, cause })
    }
  }
}

interface Answer {
  status: number
  text: string
  contentType: string
  retryAfter: string | undefined
}

function failure(kind: AnyMessageKind, answer: Answer): RefusedError | GatewayError {
  const { type, detail } = problemIn(answer)
  const refusal = type.startsWith(PROBLEM_TYPE_BASE) ? type.slice(PROBLEM_TYPE_BASE.length) : ""
  if (isRefusal(refusal) && REFUSALS[refusal] === answer.status) return new RefusedError(refusal, detail)
  return new GatewayError(`the gateway answers ${answer.status} to ${kind}: ${detail}`, {
    status: answer.status,
    retryAfterSeconds: /^\d{1,5}$/.test(answer.retryAfter ?? "") ? Number(answer.retryAfter) : undefined,
  })
}

function isRefusal(word: string): word is Refusal {
  return Object.hasOwn(REFUSALS, word)
}

/** The problem document's type and detail; empty for anything that is none, such as a proxy's page. */
function problemIn({ contentType, text }: Answer): { type: string; detail: string } {
  if (!contentType.startsWith("application/problem+json")) return { type: "", detail: "" }
  try {
    const { type, detail } = JSON.parse(text) as { type?: unknown; detail?: unknown }
    return { type: String(type), detail: String(detail) }
  } catch {
    return { type: "", detail: "" }
  }
}
