import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Agent, request } from "undici"
import { inject } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { startThrowaway } from "../control-plane.setup.ts"

/** Control plane whose etcd has a small quota, and the operation that makes room in it. */
export interface SmallControlPlane {
  controlPlane: ControlPlane
  /** Compacts, defragments and disarms the alarm, as etcd's documentation describes it for exceeded quotas. */
  makeRoom(): Promise<void>
  close(): Promise<void>
}

/** @param quotaBytes etcd's --quota-backend-bytes */
export async function startSmallControlPlane(quotaBytes: number): Promise<SmallControlPlane> {
  const folder = await mkdtemp(join(tmpdir(), "berth-test-etcd-"))
  const binaries = inject("controlPlaneBinaries")
  const told = join(folder, "arguments")
  const etcd = join(folder, "etcd")
  const script = `#!/bin/sh\nprintf '%s\\n' "$@" > '${told}'\nexec '${binaries.etcd}' "$@" --quota-backend-bytes=${quotaBytes}\n`
  await writeFile(etcd, script)
  await chmod(etcd, 0o700)
  const controlPlane = await startThrowaway({ ...binaries, etcd }, (error) => console.error(error))
  return {
    controlPlane,
    makeRoom: async () => await makeRoom(await readFile(told, "utf8")),
    close: async () => {
      await controlPlane.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function makeRoom(flags: string): Promise<void> {
  const flag = (name: string) => new RegExp(`^--${name}=(.*)$`, "m").exec(flags)?.[1] ?? ""
  // The API server's own certificate for etcd lies beside etcd's.
  const ofClient = (path: string) => readFile(path.replace(/etcd(?=[.](crt|key)$)/, "etcd-client"))
  const [ca, cert, key] = await Promise.all([
    readFile(flag("trusted-ca-file")),
    ofClient(flag("cert-file")),
    ofClient(flag("key-file")),
  ])
  const dispatcher = new Agent({ connect: { ca, cert, key } })
  const call = async (path: string, body: object) => {
    const answer = await request(`${flag("listen-client-urls")}/v3/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      dispatcher,
    })
    const text = await answer.body.text()
    if (answer.statusCode !== 200) throw new Error(`etcd: ${path}: ${answer.statusCode} ${text}`)
    return JSON.parse(text) as { header?: { revision: string }; alarms?: { memberID: string; alarm: string }[] }
  }
  const { header } = await call("kv/range", { key: Buffer.from("/none").toString("base64") })
  await call("kv/compaction", { revision: header?.revision, physical: true })
  await call("maintenance/defragment", {})
  const { alarms = [] } = await call("maintenance/alarm", { action: "GET" })
  for (const alarm of alarms) await call("maintenance/alarm", { action: "DEACTIVATE", ...alarm })
  await dispatcher.close()
}
