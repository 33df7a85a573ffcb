import type { Readable } from "node:stream"
import type { Static, TSchema } from "typebox"
import type { Clock } from "../core/apis/clock.ts"
import { type AgentKeys, publicKey, signMessage } from "../core/protocol/messages.ts"
import {
  ABILITIES,
  type BootConfig,
  type LogsResponse,
  LogsResponseSchema,
  type MessageKind,
  type NextRequest,
  type NextResponse,
  NextResponseSchema,
  PROTOCOL_VERSION,
  type RegisterResponse,
  RegisterResponseSchema,
  type ReportRequest,
  type ReportResponse,
  ReportResponseSchema,
  type VolumesResponse,
  VolumesResponseSchema,
} from "../core/protocol/protocol.ts"
import { GatewayConnection, type Message } from "./gateway-connection.ts"

/** Client of the agent's protocol. Every method rejects with RefusedError or GatewayError. */
export class GatewayClient {
  readonly #config: BootConfig
  readonly #keys: AgentKeys
  readonly #connection: GatewayConnection
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
    this.#connection = new GatewayConnection(config)
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
    return await this.#connection.stream(await this.#message("workdir", { start }))
  }

  /**
   * Asks for another job. The answer is still sealed: `openBootConfig` opens it. The gateway holds the question for a
   * while, unless the VM leaves or is unfit.
   */
  async next(about: Omit<NextRequest, "launch">, signal: AbortSignal): Promise<NextResponse> {
    const message = await this.#message("next", about)
    return await this.#connection.ask({ ...message, signal, isHeld: true }, NextResponseSchema)
  }

  /** Aborts pending requests. */
  async close(): Promise<void> {
    await this.#connection.close()
  }

  async #post<T extends TSchema>(kind: MessageKind, message: object, schema: T): Promise<Static<T>> {
    return await this.#connection.ask(await this.#message(kind, message), schema)
  }

  async #message(kind: MessageKind, content: object): Promise<Message> {
    const { launch, bootstrapToken: token } = this.#config
    const jws = await signMessage(kind, { launch, ...content }, this.#keys.signing)
    return { kind, path: `launches/${encodeURIComponent(launch)}/${kind}`, token, jws }
  }
}
