import { cp, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, beforeAll, expect, inject, it } from "vitest"
import { type ControlPlane, startControlPlane } from "../../dev/controlplane/control-plane.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../src/core/kube/core.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { eventually } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const NAMESPACE = "default"
let folder: string
let controlPlane: ControlPlane

const start = () =>
  startControlPlane({ binaries: inject("controlPlaneBinaries"), dataDir: join(folder, "data"), durable: false })

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-restore-"))
  controlPlane = await start()
})
afterAll(async () => {
  await controlPlane.stop()
  await rm(folder, { recursive: true, force: true })
})

/** Stops the servers, does something with etcd's folder, and starts them at the same address. */
async function whileStopped(act: (etcd: string) => Promise<void>): Promise<void> {
  await controlPlane.stop()
  await act(join(folder, "data", "etcd"))
  controlPlane = await start()
}

it("a reflector that keeps running shows what a restored etcd has, and drops what it has not", async () => {
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
  const client = new KubeClient(kubeConfig)
  const put = (name: string, value: string) =>
    client.apply(CONFIG_MAPS, {
      metadata: { namespace: NAMESPACE, name, labels: { test: "restore" } },
      data: { value },
    })
  const reflector = new Reflector<ConfigMap>({
    ...{ client, resource: CONFIG_MAPS, namespace: NAMESPACE, labelSelector: "test=restore", logger: silentLogger },
    backoff: { baseSeconds: 0.1, capSeconds: 0.5 },
  })
  const stop = new AbortController()
  const running = reflector.run(stop.signal)
  const shown = () =>
    Object.fromEntries(reflector.store.list().map(({ metadata, data }) => [metadata.name, data?.["value"]]))
  await put("changed", "old")
  await put("deleted", "old")
  const backup = join(folder, "backup")
  await whileStopped((etcd) => cp(etcd, backup, { recursive: true }))
  await put("changed", "new")
  await put("created", "new")
  await client.delete(CONFIG_MAPS, { namespace: NAMESPACE, name: "deleted" })
  // Versions that the restored etcd will not have reached for a while.
  for (let value = 0; value < 200; value++) await put("counter", String(value))
  await eventually(() => expect(shown()).toEqual({ changed: "new", created: "new", counter: "199" }))
  await whileStopped(async (etcd) => {
    await rm(etcd, { recursive: true })
    await cp(backup, etcd, { recursive: true })
  })
  await eventually(() => expect(shown()).toEqual({ changed: "old", deleted: "old" }))
  await put("changed", "after")
  await eventually(() => expect(shown()).toEqual({ changed: "after", deleted: "old" }))
  stop.abort()
  await running
  await client.close()
})
