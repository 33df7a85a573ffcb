import type { MachineFacts } from "../../core/apis/machine.ts"
import {
  type BeatRequest,
  type BeatResponse,
  BeatResponseSchema,
  type JoinResponse,
  JoinResponseSchema,
} from "../../core/protocol/machines.ts"
import { publicKey, signMessage } from "../../core/protocol/messages.ts"
import { type HostMessageKind, PROTOCOL_VERSION } from "../../core/protocol/protocol.ts"
import { type GatewayAddress, GatewayConnection, type Message } from "../gateway-connection.ts"
import { isHeld } from "./decide.ts"
import type { Identity } from "./disk.ts"

/** Client of the hosts' protocol. Every method rejects with RefusedError or GatewayError. */
export class HostClient {
  readonly #connection: GatewayConnection
  readonly #identity: Identity

  constructor(gateway: GatewayAddress, identity: Identity) {
    this.#connection = new GatewayConnection(gateway)
    this.#identity = identity
  }

  /** Asks to be this machine. */
  async join(
    token: string,
    about: { version: string; facts: MachineFacts },
    signal: AbortSignal,
  ): Promise<JoinResponse> {
    const { signing, encryption } = this.#identity.keys
    const content = {
      protocol: PROTOCOL_VERSION,
      ...about,
      signingKey: publicKey(signing, "Ed25519"),
      encryptionKey: publicKey(encryption, "X25519"),
    }
    return await this.#connection.ask({ ...(await this.#message("join", content, token)), signal }, JoinResponseSchema)
  }

  /** Says what the host does. The job in the answer is still sealed: `openBootConfig` opens it. */
  async beat(beat: BeatRequest, signal: AbortSignal): Promise<BeatResponse> {
    const message = await this.#message("beat", beat, this.#identity.machineToken ?? "")
    return await this.#connection.ask({ ...message, signal, isHeld: isHeld(beat) }, BeatResponseSchema)
  }

  /** Aborts pending messages. */
  async close(): Promise<void> {
    await this.#connection.close()
  }

  async #message(kind: HostMessageKind, content: object, token: string): Promise<Message> {
    const { namespace, name, keys } = this.#identity
    const path = `machines/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}/${kind}`
    return { kind, path, token, jws: await signMessage(kind, content, keys.signing) }
  }
}
