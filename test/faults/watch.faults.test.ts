import { setTimeout as sleep } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import fc from "fast-check"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap, NAMESPACES } from "../../src/core/kube/core.ts"
import { isAlreadyExists, isConflict, isNotFound, KubeError } from "../../src/core/kube/errors.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { ChaosProxy, status } from "../harness/chaos-proxy.ts"
import { until } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SEED } from "./effort.ts"
import { suiteTally } from "./suite-tally.ts"
import { type ClientGo, startClientGo } from "./watch-client-go.ts"

/** Long form of test/kube/reflector.chaos.nightly.test.ts, with client-go beside our reflector. */
const FAULTS = Number(process.env["BERTH_WATCH_FAULTS"] ?? 1000)
const EVENTS = 100 * FAULTS
const NAMESPACE = "chaos"
/** Maximum time without a fault, or of a stall, in milliseconds. */
const GAP_MS = 600
/**
 * Backoff at a twentieth of the default, as client-go's in `client-go/main.go`: a fault during a wait has no effect.
 */
const BACKOFF = { baseSeconds: 0.04, capSeconds: 1.5 }
const NAMES = 40

interface Side {
  proxy: ChaosProxy
  relist: () => Promise<number>
  versions: () => Promise<string[]>
}

type Fault = (proxy: ChaosProxy) => void

const GONE = { type: "ERROR", object: status(410, "Expired") }

const STALL = "a watch that stalls, half open"
const RESTART = "a restart of the API server"

const FAULT_KINDS: Record<string, Fault> = {
  reset: (proxy) => proxy.reset(),
  "cut in the middle of an event": (proxy) => void proxy.truncate(),
  "429 to a watch": (proxy) => {
    proxy.inject("watch", { code: 429, retryAfter: 1, body: status(429, "TooManyRequests") })
    proxy.reset()
  },
  "503 to a watch": (proxy) => {
    proxy.inject("watch", { code: 503, body: status(503, "ServiceUnavailable") })
    proxy.truncate()
  },
  "410 as an event": (proxy) => {
    proxy.inject("watch", { code: 200, body: `${JSON.stringify(GONE)}\n` })
    proxy.reset()
  },
  "410, and lists that fail": (proxy) => {
    proxy.inject("watch", { code: 410, body: status(410, "Expired") })
    proxy.inject("list", { code: 503, body: "<html>no healthy upstream</html>" })
    proxy.reset()
  },
  "half a list": (proxy) => {
    proxy.inject("watch", { code: 410, body: status(410, "Expired") })
    proxy.inject("list", { code: 200, body: '{"kind":"ConfigMapList","items":[{"metadata":{"na' })
    proxy.truncate()
  },
  [STALL]: (proxy) => void proxy.stall(),
}

describe(`${FAULTS} faults under ${EVENTS} events, beside client-go`, () => {
  const tally = suiteTally("watch", "Watches: our reflector and client-go's under the same faults")
  let controlPlane: ControlPlane
  let direct: KubeClient
  let clientGo: ClientGo
  const proxies: ChaosProxy[] = []

  beforeAll(async () => {
    controlPlane = await startPrivateControlPlane()
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
    direct = new KubeClient(kubeConfig)
    await direct.create(NAMESPACES, { metadata: { name: NAMESPACE } })
    for (let i = 0; i < 2; i++) proxies.push(await ChaosProxy.start(kubeConfig))
    clientGo = await startClientGo(proxies[1]?.kubeConfig().getCurrentCluster()?.server ?? "", NAMESPACE)
  }, 1_200_000)

  afterAll(async () => {
    await clientGo.stop()
    for (const proxy of proxies) await proxy.close()
    await controlPlane.stop()
  })

  test("our reflector and client-go both end with the API server's state", async () => {
    const [ours, theirs] = proxies
    if (ours === undefined || theirs === undefined) throw new Error("the proxies did not start")
    const reflector = new Reflector<ConfigMap>({
      client: new KubeClient(ours.kubeConfig()),
      resource: CONFIG_MAPS,
      namespace: NAMESPACE,
      logger: silentLogger,
      backoff: BACKOFF,
    })
    const ending = new AbortController()
    const running = reflector.run(ending.signal)
    const sides: Record<string, Side> = {
      "our reflector": {
        proxy: ours,
        relist: () => Promise.resolve(reflector.counts.lists),
        versions: () => Promise.resolve(versionsOf(reflector.store.list())),
      },
      "client-go's reflector": {
        proxy: theirs,
        relist: async () => (await clientGo.state()).lists,
        versions: async () =>
          Object.entries((await clientGo.state()).objects)
            .map(([name, version]) => `${name} ${version}`)
            .sort(),
      },
    }
    const writing = new AbortController()
    const written = Promise.all([1, 2, 3, 4].map((worker) => write(direct, worker, writing.signal)))
    const kinds = await shake(controlPlane, Object.values(sides))
    writing.abort()
    const events = (await written).reduce((sum, writes) => sum + writes, 0)
    const caughtUp = await catchUp(direct, sides)
    for (const [on, { relist }] of Object.entries(sides)) {
      for (const [faults, times] of kinds) tally.count({ faults, on }, [], times)
      const found = caughtUp.get(on)
      console.log(`${on}: ${events} events, ${await relist()} lists, the truth after ${found?.toFixed(1)} s`)
      expect(found, on).toBeDefined()
    }
    ending.abort()
    await running
  }, 3_600_000)
})

/** Injects the same faults on both sides while both watch. Returns the number of each kind. */
async function shake(controlPlane: ControlPlane, sides: readonly Side[]): Promise<Map<string, number>> {
  const names = Object.keys(FAULT_KINDS)
  const drawn = fc.sample(fc.tuple(fc.constantFrom(...names), fc.integer({ min: 20, max: GAP_MS })), {
    seed: SEED,
    numRuns: FAULTS,
  })
  const counts = new Map<string, number>()
  const both = (what: string, holds: (proxy: ChaosProxy, side: number) => boolean) =>
    until(what, () => sides.every(({ proxy }, side) => holds(proxy, side)), 120)
  for (const [index, [name, gap]] of drawn.entries()) {
    await both("both watch", ({ openWatches }) => openWatches > 0)
    await sleep(gap)
    const opened = sides.map(({ proxy }) => proxy.watchesOpened)
    const kind = index % 100 === 99 ? RESTART : name
    if (kind === RESTART) await controlPlane.restartApiServer()
    else for (const { proxy } of sides) FAULT_KINDS[kind]?.(proxy)
    counts.set(kind, (counts.get(kind) ?? 0) + 1)
    if (kind === STALL) {
      await sleep(gap)
      // A stalled watch ends by a configurable timeout, which is not part of this comparison.
      for (const { proxy } of sides) proxy.reset()
    }
    await both(`both watch again after ${kind}`, ({ watchesOpened }, side) => watchesOpened > (opened[side] ?? 0))
  }
  for (const { proxy } of sides) proxy.calm()
  return counts
}

/** Returns the seconds until each side shows the API server's state. A side that times out is missing. */
async function catchUp(direct: KubeClient, sides: Record<string, Side>): Promise<Map<string, number>> {
  const since = performance.now()
  const truth = versionsOf((await direct.list(CONFIG_MAPS, { namespace: NAMESPACE })).items)
  const seconds = new Map<string, number>()
  await Promise.all(
    Object.entries(sides).map(async ([name, { versions }]) => {
      await until(name, async () => JSON.stringify(await versions()) === JSON.stringify(truth), 120)
      seconds.set(name, (performance.now() - since) / 1000)
    }),
  )
  return seconds
}

function versionsOf(objects: readonly ConfigMap[]): string[] {
  return objects.map(({ metadata }) => `${metadata.name} ${metadata.uid} ${metadata.resourceVersion}`).sort()
}

/** Creates, changes and deletes the same names repeatedly until the signal. Returns the number of successful writes. */
async function write(client: KubeClient, worker: number, signal: AbortSignal): Promise<number> {
  let writes = 0
  for (let n = 0; !signal.aborted || writes < EVENTS / 4; n++) {
    const ref = { namespace: NAMESPACE, name: `w${worker}-${n % NAMES}` }
    try {
      if (n % 7 === 3) await client.delete(CONFIG_MAPS, ref)
      else await client.apply(CONFIG_MAPS, { metadata: ref, data: { n: String(n) } }, { force: true })
      writes++
    } catch (error) {
      if (!(error instanceof KubeError)) throw error
      if (!isNotFound(error) && !isConflict(error) && !isAlreadyExists(error)) await sleep(50)
    }
  }
  return writes
}
