import { readFile } from "node:fs/promises"
import type { RequestOptions } from "node:https"
import { join } from "node:path"
import { KubeConfig } from "@kubernetes/client-node"
import { Pool } from "undici"
import type { ControlPlane } from "../dev/controlplane/control-plane.ts"

/** One kind of write, such as `PATCH launches/status`. */
export type WriteKind = string

/** Number of such writes that the API server has answered, by kind. */
export type Writes = ReadonlyMap<WriteKind, number>

/** All writes of Berth are to its own kinds, and Events. */
export const WRITTEN_GROUPS: readonly string[] = ["berth.dev", ""]

const WRITE_VERBS = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"]

/** Elections renew their Leases every few seconds, whatever the load. `scale` counts the Leases with heartbeats itself. */
const NOT_COUNTED = ["leases"]

/**
 * Calls a kube-apiserver by pooled connections only, as its administrator: the maximum speed that any client can reach.
 */
export class ApiServer {
  readonly #pool: Pool

  private constructor(pool: Pool) {
    this.#pool = pool
  }

  static async open({ kubeconfigPath }: ControlPlane, connections: number): Promise<ApiServer> {
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(kubeconfigPath)
    const tls: RequestOptions = {}
    await kubeConfig.applyToHTTPSOptions(tls)
    const { ca, cert, key } = tls as { ca: Buffer; cert: Buffer; key: Buffer }
    const server = kubeConfig.getCurrentCluster()?.server ?? ""
    return new ApiServer(new Pool(server, { connections, allowH2: false, connect: { ca, cert, key } }))
  }

  /** Sends a request and reads the whole answer. Throws Error unless it is a success. */
  async send(method: "POST" | "PUT" | "PATCH", path: string, body: object): Promise<unknown> {
    const contentType = method === "PATCH" ? "application/merge-patch+json" : "application/json"
    const headers = { "content-type": contentType }
    const answer = await this.#pool.request({ method, path, headers, body: JSON.stringify(body) })
    if (answer.statusCode < 300) return await answer.body.json()
    throw new Error(`${method} ${path}: ${answer.statusCode} ${await answer.body.text()}`)
  }

  /** Returns the server's own counts, for the given API groups only. */
  async writes(groups: readonly string[]): Promise<Writes> {
    const { body } = await this.#pool.request({ method: "GET", path: "/metrics" })
    const counts = new Map<WriteKind, number>()
    for (const line of (await body.text()).split("\n")) {
      if (!line.startsWith("apiserver_request_total{")) continue
      const label = (name: string): string => new RegExp(`[{,]${name}="([^"]*)"`).exec(line)?.[1] ?? ""
      const [verb, resource, subresource] = ["verb", "resource", "subresource"].map(label)
      if (verb === undefined || !WRITE_VERBS.includes(verb) || !groups.includes(label("group"))) continue
      if (resource === undefined || NOT_COUNTED.includes(resource)) continue
      const kind = `${verb} ${resource}${subresource ? `/${subresource}` : ""}`
      counts.set(kind, (counts.get(kind) ?? 0) + Number(line.slice(line.lastIndexOf(" "))))
    }
    return counts
  }

  close(): Promise<void> {
    return this.#pool.close()
  }
}

/** Returns the writes between two counts. */
export function writesBetween(before: Writes, after: Writes): Map<WriteKind, number> {
  const between = [...after].map(([kind, count]) => [kind, count - (before.get(kind) ?? 0)] as const)
  return new Map(between.filter(([, count]) => count > 0))
}

export function sumOf(writes: Writes): number {
  return [...writes.values()].reduce((total, count) => total + count, 0)
}

/** Prefix of a Berth object's key in etcd; its plural, namespace and name follow. */
const ETCD_PREFIX = "/registry/berth.dev"

/** Objects in one transaction; etcd accepts 128 by default. */
const TRANSACTION = 100

/**
 * The store behind an API server. It holds objects of custom kinds as the JSON that the server wrote. Writing a hundred
 * thousand of them directly takes seconds, and the API server can't distinguish them from its own.
 */
export class Etcd {
  readonly #pool: Pool

  private constructor(pool: Pool) {
    this.#pool = pool
  }

  static async open({ dataDir, pids }: ControlPlane): Promise<Etcd> {
    // The address from etcd's command line.
    const commandLine = await readFile(`/proc/${pids.etcd}/cmdline`, "utf8")
    const [, etcdUrl = ""] = /--listen-client-urls=([^\0]+)/.exec(commandLine) ?? []
    const read = (name: string): Promise<Buffer> => readFile(join(dataDir, "pki", "certificates", name))
    const [ca, cert, key] = await Promise.all(["etcd-ca.crt", "etcd-client.crt", "etcd-client.key"].map(read))
    return new Etcd(new Pool(etcdUrl, { connections: 4, allowH2: false, connect: { ca, cert, key } }))
  }

  /** Returns an object as it is stored. @param path plural, namespace and name */
  async read(path: string): Promise<string> {
    const { kvs: [found] = [] } = await this.#call<{ kvs?: { value: string }[] }>("range", { key: keyOf(path) })
    if (found === undefined) throw new Error(`etcd has nothing at ${path}`)
    return Buffer.from(found.value, "base64").toString()
  }

  /** Stores objects, by their paths. */
  async write(objects: Iterable<readonly [path: string, json: string]>): Promise<void> {
    const left = [...objects]
    const worker = async (): Promise<void> => {
      for (let some = left.splice(0, TRANSACTION); some.length > 0; some = left.splice(0, TRANSACTION)) {
        const success = some.map(([path, value]) => ({
          requestPut: { key: keyOf(path), value: Buffer.from(value).toString("base64") },
        }))
        await this.#call("txn", { success })
      }
    }
    await Promise.all(Array.from({ length: 4 }, worker))
  }

  /** Deletes all objects whose paths have the prefix. */
  async remove(prefix: string): Promise<void> {
    // Up to the first key without the prefix: ~ sorts after all characters of names.
    await this.#call("deleterange", { key: keyOf(prefix), range_end: keyOf(`${prefix}~`) })
  }

  close(): Promise<void> {
    return this.#pool.close()
  }

  async #call<Answer>(operation: "range" | "txn" | "deleterange", request: object): Promise<Answer> {
    const sent = { method: "POST", path: `/v3/kv/${operation}`, body: JSON.stringify(request) } as const
    const { statusCode, body } = await this.#pool.request(sent)
    if (statusCode === 200) return (await body.json()) as Answer
    throw new Error(`etcd's ${operation}: ${statusCode} ${await body.text()}`)
  }
}

function keyOf(path: string): string {
  return Buffer.from(`${ETCD_PREFIX}/${path}`).toString("base64")
}
