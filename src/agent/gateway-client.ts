import type { Readable } from "node:stream"
import { rootCertificates } from "node:tls"
import type { Static, TSchema } from "typebox"
import { type Dispatcher, request } from "undici"
import { type BackoffLimits, backoffSeconds } from "../core/apis/backoff.ts"
import type { Clock } from "../core/apis/clock.ts"
import { createDispatcher } from "../core/apis/dispatcher.ts"
import { type AgentKeys, check, publicKey, signMessage } from "../core/protocol/messages.ts"
import {
  ABILITIES,
  type BootConfig,
  GATEWAY_PATH,
  JWS_CONTENT_TYPE,
  type LogsResponse,
  LogsResponseSchema,
  type MessageKind,
  NEXT_WAIT_SECONDS,
  type NextRequest,
  type NextResponse,
  NextResponseSchema,
  PROBLEM_TYPE_BASE,
  PROTOCOL_VERSION,
  REFUSALS,
  type Refusal,
  type RegisterResponse,
  RegisterResponseSchema,
  type ReportRequest,
  type ReportResponse,
  ReportResponseSchema,
  type VolumesResponse,
  VolumesResponseSchema,
} from "../core/protocol/protocol.ts"

const ANSWER_TIMEOUT_MS = 30_000
const CONNECT_TIMEOUT_MS = 10_000

/** Timeout of a question that the gateway may hold until there is a job. */
const NEXT_TIMEOUT_MS = NEXT_WAIT_SECONDS * 1000 + ANSWER_TIMEOUT_MS

/** Largest answer that is read, bytes. An order may have as much environment as a Job. */
const ANSWER_BYTES = 32 * 1024 * 1024

/** Final rejection by the gateway: stop the container, power off. */
export class RefusedError extends Error {
  override readonly name = "RefusedError"
  readonly refusal: Refusal

  constructor(refusal: Refusal, detail: string) {
    super(`the gateway rejects this agent (${refusal}): ${detail}`)
    this.refusal = refusal
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

/** Returns the authorities to trust, if the public ones are not enough. */
function trustOf({ gatewayCa }: BootConfig): { ca?: string[] } {
  return gatewayCa === undefined ? {} : { ca: [...rootCertificates, gatewayCa] }
}

/** Client of the agent's protocol. Every method rejects with RefusedError or GatewayError. */
export class GatewayClient {
  readonly #config: BootConfig
  readonly #keys: AgentKeys
  readonly #dispatcher: Dispatcher
  /** Connections for answers of any size. */
  readonly #large: Dispatcher
  readonly #clock: Pick<Clock, "monotonic">
  /**
   * Time of the gateway's clock when the monotonic clock was 0, milliseconds since 1970, from the first answer with a
   * time. It stays the same, so that a piece that is sent twice has the same times.
   */
  #epoch: number | undefined

  constructor(config: BootConfig, keys: AgentKeys, clock: Pick<Clock, "monotonic">) {
    this.#config = config
    this.#keys = keys
    this.#clock = clock
    const options = {
      connect: { timeout: CONNECT_TIMEOUT_MS, ...trustOf(config) },
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
    }
    this.#dispatcher = createDispatcher({ ...options, maxResponseSize: ANSWER_BYTES })
    this.#large = createDispatcher(options)
  }

  /** Registers the agent. The order in the answer is still sealed: `openOrder` opens it. */
  async register(about: { version: string; runtime: string }): Promise<RegisterResponse> {
    const message = {
      protocol: PROTOCOL_VERSION,
      ...about,
      signingKey: publicKey(this.#keys.signing, "Ed25519"),
      encryptionKey: publicKey(this.#keys.encryption, "X25519"),
      abilities: ABILITIES,
    }
    const answer = await this.#post("register", message, RegisterResponseSchema)
    this.#learnTime(answer)
    return answer
  }

  report(report: Omit<ReportRequest, "launch">): Promise<ReportResponse> {
    return this.#post("report", report, ReportResponseSchema)
  }

  /** @param times seconds of the monotonic clock at which the bytes from `at` of this piece on were read */
  async sendLog(
    offset: number,
    data: Buffer,
    times: readonly { at: number; seconds: number }[] = [],
  ): Promise<LogsResponse> {
    // An empty piece changes nothing. Its answer has the gateway's time, which an agent after a restart doesn't know.
    if (times.length > 0 && this.#epoch === undefined) await this.sendLog(offset, Buffer.alloc(0))
    const epoch = this.#epoch
    const known =
      epoch === undefined ? [] : times.map(({ at, seconds }) => ({ at, time: Math.round(epoch + seconds * 1000) }))
    const message = { offset, data: data.toString("base64"), ...(known.length > 0 && { times: known }) }
    const answer = await this.#post("logs", message, LogsResponseSchema)
    this.#learnTime(answer)
    return answer
  }

  #learnTime({ time }: { time?: number }): void {
    if (time !== undefined) this.#epoch ??= time - this.#clock.monotonic() * 1000
  }

  /** Requests access to the buckets. The answer is still sealed: `openBuckets` opens it. */
  volumes(): Promise<VolumesResponse> {
    return this.#post("volumes", {}, VolumesResponseSchema)
  }

  /** Requests the archive of the run's workdir, from byte `start` on. The stream ends with an error if it breaks off. */
  async workdir(start: number): Promise<Readable> {
    const answer = await this.#send("workdir", { start }, this.#large)
    if (answer.statusCode !== 200) throw failure("workdir", await this.#read(answer))
    return answer.body
  }

  /**
   * Asks for another job. The answer is still sealed: `openBootConfig` opens it. The gateway holds the question for a
   * while, unless the VM leaves or is unfit.
   */
  async next(about: Omit<NextRequest, "launch">, signal: AbortSignal): Promise<NextResponse> {
    const limits = { signal, headersTimeout: NEXT_TIMEOUT_MS }
    const answer = await this.#read(await this.#send("next", about, this.#dispatcher, limits))
    return parse("next", answer, NextResponseSchema)
  }

  /** Aborts pending requests. */
  async close(): Promise<void> {
    await Promise.all([this.#dispatcher.destroy(), this.#large.destroy()])
  }

  async #post<T extends TSchema>(kind: MessageKind, message: object, schema: T): Promise<Static<T>> {
    return parse(kind, await this.#read(await this.#send(kind, message, this.#dispatcher)), schema)
  }

  async #send(
    kind: MessageKind,
    message: object,
    dispatcher: Dispatcher,
    limits: { signal?: AbortSignal; headersTimeout?: number } = {},
  ): Promise<Dispatcher.ResponseData> {
    const { launch, gatewayUrl, bootstrapToken } = this.#config
    const body = await signMessage(kind, { launch, ...message }, this.#keys.signing)
    const url = `${gatewayUrl.replace(/\/+$/, "")}${GATEWAY_PATH}/launches/${encodeURIComponent(launch)}/${kind}`
    const headers = { "content-type": JWS_CONTENT_TYPE, authorization: `Bearer ${bootstrapToken}` }
    return await this.#answered(request(url, { method: "POST", headers, body, dispatcher, ...limits }))
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
      throw new GatewayError(`the gateway at ${this.#config.gatewayUrl} does not answer: ${why}`, { status: 0, cause })
    }
  }
}

interface Answer {
  status: number
  text: string
  contentType: string
  retryAfter: string | undefined
}

/** Returns the content of a good answer. @throws RefusedError, GatewayError */
function parse<T extends TSchema>(kind: MessageKind, answer: Answer, schema: T): Static<T> {
  if (answer.status !== 200) throw failure(kind, answer)
  try {
    return check(schema, JSON.parse(answer.text), `the gateway's answer to ${kind}`)
  } catch (cause) {
    throw new GatewayError(`the gateway's answer to ${kind} does not match the protocol`, { status: 200, cause })
  }
}

function failure(kind: MessageKind, answer: Answer): RefusedError | GatewayError {
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
