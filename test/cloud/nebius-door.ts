import { once } from "node:events"
import { type AddressInfo, createServer, type Server as NetServer, type Socket } from "node:net"
import type { DescMethod } from "@bufbuild/protobuf"
import { type Metadata, Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js"
import { hostOf, registry } from "../../src/clouds/nebius/api.ts"
import { connect, type SendRpc } from "../../src/clouds/nebius/rpc.ts"
import { Refusal } from "./nebius-description.ts"

/** A call as it arrives. */
export interface Incoming {
  name: string
  method: DescMethod
  metadata: Metadata
  request: Buffer
}

/** Answer to a call: a message, an error, a broken connection, or none at all. */
export type Outcome = Uint8Array | Refusal | "reset" | "silence"

/** Name of a method without its package `nebius`, and the method. */
export const METHODS: ReadonlyMap<string, { name: string; method: DescMethod }> = new Map(
  [...registry()]
    .filter((each) => each.kind === "service")
    .flatMap(({ typeName, methods }) =>
      methods.map((method) => {
        const name = `${typeName.replace(/^nebius\./, "")}/${method.name}`
        return [`/${typeName}/${method.name}`, { name, method }] as const
      }),
    ),
)

/** Header that has the host for which a call was meant. */
export const HOST = "x-stand-in-host"

const asIs = (bytes: Buffer): Buffer => bytes

/** Real gRPC between a test and its stand-in, on a port of this machine. */
export class NebiusDoor {
  readonly #grpc = new Server()
  readonly #sockets = new Map<number, Socket>()
  readonly #tcp: NetServer
  #client: ReturnType<typeof connect> | undefined

  constructor(serve: (call: Incoming) => Promise<Outcome>) {
    const injector = this.#grpc.createConnectionInjector(ServerCredentials.createInsecure())
    this.#tcp = createServer((socket) => {
      this.#sockets.set(socket.remotePort ?? 0, socket)
      injector.injectConnection(socket)
    })
    for (const [path, found] of METHODS) {
      const handle = (call: ServerUnaryCall<Buffer, Buffer>, reply: sendUnaryData<Buffer>) =>
        void serve({ ...found, metadata: call.metadata, request: call.request }).then((outcome) => {
          if (outcome === "reset") this.#sockets.get(Number(call.getPeer().split(":").at(-1)))?.destroy()
          else if (outcome instanceof Refusal)
            reply({ code: outcome.code, details: outcome.message, metadata: outcome.trailers })
          else if (outcome !== "silence") reply(null, Buffer.from(outcome))
        })
      this.#grpc.register(path, handle, asIs, asIs, "unary")
    }
  }

  async open(): Promise<void> {
    this.#tcp.listen(0, "127.0.0.1")
    await once(this.#tcp, "listening")
  }

  async close(): Promise<void> {
    ;(await this.#client)?.close()
    this.#grpc.forceShutdown()
    for (const socket of this.#sockets.values()) socket.destroy()
    this.#tcp.close()
    await once(this.#tcp, "close")
  }

  /** Sends a call in place of Nebius' hosts. An operation may be at the host of each service that has some. */
  readonly send: SendRpc = async (rpc) => {
    const found = METHODS.get(rpc.path)
    const isOfOperation = found?.name.startsWith("common.v1.OperationService/") === true
    const hosts = isOfOperation ? ["compute.api.nebius.cloud", "vpc.api.nebius.cloud"] : []
    if (found === undefined || ![...hosts, hostOf(found.method)].includes(rpc.host))
      throw new Error(`${rpc.host} does not have the method ${rpc.path}`)
    this.#client ??= connect(`127.0.0.1:${(this.#tcp.address() as AddressInfo).port}`, true)
    return await (await this.#client).send({ ...rpc, headers: { ...rpc.headers, [HOST]: rpc.host } })
  }
}
