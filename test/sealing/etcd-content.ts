import { readFile } from "node:fs/promises"
import { request } from "node:https"
import { join } from "node:path"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"

/** Returns all present keys and values of etcd as stored, without overwritten ones. */
export async function etcdContent({ dataDir, pids }: ControlPlane): Promise<Map<string, Buffer>> {
  const command = (await readFile(`/proc/${pids.etcd}/cmdline`, "utf8")).split("\0")
  const url = command.find((argument) => argument.startsWith("--listen-client-urls="))?.split("=")[1] ?? ""
  const certificates = join(dataDir, "pki", "certificates")
  const [ca, cert, key] = await Promise.all(
    ["etcd-ca.crt", "etcd-client.crt", "etcd-client.key"].map((file) => readFile(join(certificates, file))),
  )
  // Range from the first key to the last, through etcd's own gateway from JSON to gRPC.
  const body = JSON.stringify({ key: btoa("\0"), range_end: btoa("\0") })
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const options = { method: "POST", ca, cert, key, headers: { "content-type": "application/json" } }
  const asking = request(`${url}/v3/kv/range`, options, (response) => {
    const chunks: Buffer[] = []
    response.on("data", (chunk: Buffer) => chunks.push(chunk))
    response.on("end", () => resolve(Buffer.concat(chunks).toString()))
  })
  asking.on("error", reject)
  asking.end(body)
  const { kvs } = JSON.parse(await promise) as { kvs: { key: string; value: string }[] }
  return new Map(kvs.map((kv) => [Buffer.from(kv.key, "base64").toString(), Buffer.from(kv.value, "base64")]))
}
