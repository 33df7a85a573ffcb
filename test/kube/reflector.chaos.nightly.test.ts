import { setTimeout as sleep } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap, NAMESPACES } from "../../src/core/kube/core.ts"
import { isAlreadyExists, isConflict, isNotFound, KubeError } from "../../src/core/kube/errors.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { compareResourceVersions } from "../../src/core/kube/resource-version.ts"
import type { Change } from "../../src/core/kube/store.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { ChaosProxy, status } from "../harness/chaos-proxy.ts"
import { until } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const NAMESPACE = "chaos"

let controlPlane: ControlPlane
let proxy: ChaosProxy
/** Client of the API server itself, for writes and for the true state. */
let direct: KubeClient
/** Client of the proxy, for the reflector. */
let shaken: KubeClient

beforeAll(async () => {
  controlPlane = await startPrivateControlPlane()
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
  direct = new KubeClient(kubeConfig)
  await direct.create(NAMESPACES, { metadata: { name: NAMESPACE } })
  proxy = await ChaosProxy.start(kubeConfig)
  shaken = new KubeClient(proxy.kubeConfig())
})

afterAll(async () => {
  await proxy.close()
  await controlPlane.stop()
})

/** Record of the reflector's changes. Checks each change at once: it must follow from the change before. */
class Recorder {
  readonly shown = new Map<string, ConfigMap>()
  readonly deleted = new Set<string>()
  readonly faults: string[] = []

  readonly record = ({ key, old, current }: Change<ConfigMap>): void => {
    const before = this.shown.get(key)
    if (before?.metadata.uid !== old?.metadata.uid)
      this.faults.push(`${key}: the old object is not the one reported before`)
    if (current === undefined) {
      this.shown.delete(key)
      this.deleted.add(old?.metadata.uid ?? "")
      return
    }
    if (this.deleted.has(current.metadata.uid ?? "")) this.faults.push(`${key}: back from the dead`)
    const [from, to] = [before?.metadata.resourceVersion ?? "0", current.metadata.resourceVersion ?? "0"]
    if (compareResourceVersions(from, to) >= 0) this.faults.push(`${key}: went from ${from} to ${to}`)
    this.shown.set(key, current)
  }
}

function startReflector(): { reflector: Reflector<ConfigMap>; recorder: Recorder; stop: () => Promise<void> } {
  const reflector = new Reflector<ConfigMap>({
    client: shaken,
    resource: CONFIG_MAPS,
    namespace: NAMESPACE,
    logger: silentLogger,
    pageSize: 7,
    backoff: { baseSeconds: 0.05, capSeconds: 0.5 },
    serverTimeoutSeconds: 20,
    idleTimeoutSeconds: 3,
  })
  const recorder = new Recorder()
  reflector.onChange(recorder.record)
  const ended = new AbortController()
  const running = reflector.run(ended.signal)
  const stop = async (): Promise<void> => {
    ended.abort()
    await running
  }
  return { reflector, recorder, stop }
}

/** Minimum number of each worker's writes, however slow the machine is. */
const LEAST_WRITES = 150

/** Creates, changes and deletes a few names again and again; retries while the server is unreachable. */
async function write(worker: number, signal: AbortSignal): Promise<number> {
  let writes = 0
  for (let n = 0; !signal.aborted || writes < LEAST_WRITES; n++) {
    const ref = { namespace: NAMESPACE, name: `w${worker}-${n % 9}` }
    try {
      if (n % 7 === 3) await direct.delete(CONFIG_MAPS, ref)
      else await direct.apply(CONFIG_MAPS, { metadata: ref, data: { n: String(n) } }, { force: true })
      writes++
    } catch (error) {
      if (!(error instanceof KubeError)) throw error
      if (!isNotFound(error) && !isConflict(error) && !isAlreadyExists(error)) await sleep(50)
    }
    await sleep(3)
  }
  return writes
}

/** Checks that the store, the record and a list contain the same objects. */
async function expectTruth(reflector: Reflector<ConfigMap>, recorder: Recorder): Promise<void> {
  // A last write: without an event, a cache learns its version only from a bookmark, a minute later.
  const last = await direct.apply(CONFIG_MAPS, {
    metadata: { namespace: NAMESPACE, name: "last" },
    data: { at: `${Math.random()}` },
  })
  await reflector.store.waitFor(last.metadata.resourceVersion ?? "", AbortSignal.timeout(120_000))
  const list = await direct.list(CONFIG_MAPS, { namespace: NAMESPACE })
  const truth = versions(list.items)
  expect(versions(reflector.store.list())).toEqual(truth)
  expect(versions([...recorder.shown.values()])).toEqual(truth)
  expect(recorder.faults).toEqual([])
}

function versions(objects: ConfigMap[]): string[] {
  return objects.map(({ metadata }) => `${metadata.name} ${metadata.uid} ${metadata.resourceVersion}`).sort()
}

describe("a reflector", () => {
  test("misses no change through one fault after another during concurrent writes", async () => {
    const { reflector, recorder, stop } = startReflector()
    const writing = new AbortController()
    const workers = Promise.all([1, 2, 3].map((worker) => write(worker, writing.signal)))
    const gone = { type: "ERROR", object: status(410, "Expired") }
    const faults: Record<string, () => unknown> = {
      reset: () => proxy.reset(),
      truncate: () => proxy.truncate(),
      "429 to a watch": () => {
        proxy.inject("watch", { code: 429, retryAfter: 1, body: status(429, "TooManyRequests") })
        proxy.reset()
      },
      "503 to a watch": () => {
        proxy.inject("watch", { code: 503, body: status(503, "ServiceUnavailable") })
        proxy.truncate()
      },
      "410 as an event, then a failing list": () => {
        proxy.inject("watch", { code: 200, body: `${JSON.stringify(gone)}\n` })
        for (let i = 0; i < 8; i++) proxy.inject("list", { code: 503, body: "<html>no healthy upstream</html>" })
        proxy.reset()
      },
      "410 as an answer": () => {
        proxy.inject("watch", { code: 410, body: status(410, "Expired") })
        proxy.reset()
      },
      "an expired continue token": () => {
        proxy.inject("watch", { code: 410, body: status(410, "Expired") })
        proxy.inject("list", { code: 410, body: status(410, "Expired") })
        proxy.reset()
      },
      "half a list": () => {
        proxy.inject("watch", { code: 410, body: status(410, "Expired") })
        proxy.inject("list", { code: 200, body: '{"kind":"ConfigMapList","items":[{"metadata":{"na' })
        proxy.truncate()
      },
      "silent stall": () => proxy.stall(),
      "restart of the API server": () => controlPlane.restartApiServer(),
    }
    await reflector.whenSynced(AbortSignal.timeout(120_000))
    for (const [name, fault] of Object.entries(faults)) {
      const before = reflector.store.resourceVersion
      const opened = proxy.watchesOpened
      await fault()
      await until(`the watch again after ${name}`, () => proxy.watchesOpened > opened, 120)
      await until(`news after ${name}`, () => reflector.store.resourceVersion !== before, 120)
    }
    for (let i = 0; i < 20; i++) {
      for (const fault of [proxy.reset, proxy.truncate]) {
        fault.call(proxy)
        await sleep(Math.random() * 60)
      }
    }
    writing.abort()
    const writes = await workers
    proxy.calm()
    expect(Math.min(...writes)).toBeGreaterThanOrEqual(LEAST_WRITES)
    await expectTruth(reflector, recorder)
    expect(recorder.deleted.size).toBeGreaterThan(10)
    await stop()
  })

  test("misses no deletion or replacement during an outage longer than the watch", async () => {
    const { reflector, recorder, stop } = startReflector()
    const names = ["stays", "goes", "is-replaced"]
    for (const name of names)
      await direct.create(CONFIG_MAPS, { metadata: { namespace: NAMESPACE, name }, data: { n: "1" } })
    await until("all three", () => names.every((name) => reflector.store.get({ namespace: NAMESPACE, name })))
    const uidOf = (name: string): string => reflector.store.get({ namespace: NAMESPACE, name })?.metadata.uid ?? ""
    const before = { goes: uidOf("goes"), replaced: uidOf("is-replaced"), stays: uidOf("stays") }
    proxy.inject("watch", { code: 410, body: status(410, "Expired") })
    for (let i = 0; i < 5; i++) proxy.inject("list", { code: 503, body: status(503, "ServiceUnavailable") })
    proxy.reset()
    await direct.delete(CONFIG_MAPS, { namespace: NAMESPACE, name: "goes" })
    await direct.delete(CONFIG_MAPS, { namespace: NAMESPACE, name: "is-replaced" })
    await direct.create(CONFIG_MAPS, { metadata: { namespace: NAMESPACE, name: "is-replaced" }, data: { n: "2" } })
    await expectTruth(reflector, recorder)
    expect(recorder.deleted).toContain(before.goes)
    expect(recorder.deleted).toContain(before.replaced)
    expect(recorder.deleted).not.toContain(before.stays)
    expect(reflector.store.getByUid(before.replaced)).toBeUndefined()
    expect(reflector.store.get({ namespace: NAMESPACE, name: "is-replaced" })?.data).toEqual({ n: "2" })
    await stop()
  })

  test("misses no deletion when the server has expired the version to resume from", async () => {
    const { reflector, recorder, stop } = startReflector()
    await reflector.whenSynced(AbortSignal.timeout(120_000))
    await direct.apply(CONFIG_MAPS, { metadata: { namespace: NAMESPACE, name: "doomed" } })
    await until("the object", () => reflector.store.get({ namespace: NAMESPACE, name: "doomed" }))
    for (let i = 0; i < 1000; i++) proxy.inject("any", { code: 503, body: status(503, "ServiceUnavailable") })
    proxy.reset()
    await direct.delete(CONFIG_MAPS, { namespace: NAMESPACE, name: "doomed" })
    // A new API server's watch cache is empty at its start, so the server can't report the deletion.
    await controlPlane.restartApiServer()
    const lists = proxy.otherRequests
    proxy.calm()
    await expectTruth(reflector, recorder)
    expect(recorder.shown.has(`${NAMESPACE}/doomed`)).toBe(false)
    expect(proxy.otherRequests).toBeGreaterThan(lists)
    await stop()
  })
})
