import type { Metadata as GrpcMetadata } from "@grpc/grpc-js"

/** One unary call of gRPC. */
export interface Rpc {
  /** Host name of the service. It is called on port 443, by TLS. */
  host: string
  /** Path of the method, such as `/nebius.compute.v1.InstanceService/Create`. */
  path: string
  message: Uint8Array
  headers: Readonly<Record<string, string>>
  /** Seconds until the call fails with DEADLINE_EXCEEDED. */
  timeoutSeconds: number
}

/**
 * Sends a call and returns the answer's message. Tests replace it. @throws the errors of `@grpc/grpc-js`, with `code`,
 * `details` and `metadata`
 */
export type SendRpc = (rpc: Rpc) => Promise<Uint8Array>

/** Opens a connection to `HOST:PORT`. */
export type Connect = (address: string) => Promise<{ send: SendRpc; close: () => void }>

const asIs = (bytes: Uint8Array): Buffer => Buffer.from(bytes)

/** Connects to a server: by TLS, or in plain text to a server of a test. The library honours `https_proxy`. */
export async function connect(address: string, isPlain = false): ReturnType<Connect> {
  const { default: grpc } = await import("@grpc/grpc-js")
  const credentials = isPlain ? grpc.credentials.createInsecure() : grpc.credentials.createSsl()
  const client = new grpc.Client(address, credentials)
  const send: SendRpc = ({ path, message, headers, timeoutSeconds }) => {
    const metadata: GrpcMetadata = new grpc.Metadata()
    for (const [name, value] of Object.entries(headers)) metadata.set(name, value)
    const deadline = Date.now() + timeoutSeconds * 1000
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(path, asIs, asIs, message, metadata, { deadline }, (error, answer) => {
        if (error !== null || answer === undefined) reject(error ?? new Error("the call has no answer"))
        else resolve(answer)
      })
    })
  }
  return { send, close: () => client.close() }
}

const connections = new Map<string, ReturnType<Connect>>()

/** Sends calls to Nebius. All accounts share one connection a host: it has no credentials, each call has its own. */
export const sendRpc: SendRpc = async (rpc) => {
  const connection = connections.get(rpc.host) ?? connect(`${rpc.host}:443`)
  connections.set(rpc.host, connection)
  return await (await connection).send(rpc)
}
