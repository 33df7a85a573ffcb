import { afterEach, describe, expect, test } from "vitest"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../src/core/kube/core.ts"
import { LeaderElector, type LeaderElectorOptions } from "../../src/core/kube/lease.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import {
  Controller,
  type ControllerOptions,
  type Reconcile,
  TerminalError,
  watchSource,
} from "../../src/core/runtime/controller.ts"
import { Manager, type ManagerOptions, type RunnableReflector } from "../../src/core/runtime/manager.ts"
import { NotLeaderError } from "../../src/operator/fence.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { until } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const namespace = testNamespace("controller")
const client = new KubeClient(kubeConfig())
const running: { stop: () => Promise<void> }[] = []
afterEach(async () => {
  for (const { stop } of running.splice(0)) await stop()
})

function reflect(label: string): Reflector<ConfigMap> {
  return new Reflector<ConfigMap>({
    client,
    resource: CONFIG_MAPS,
    namespace,
    labelSelector: `test=${label}`,
    logger: silentLogger,
  })
}

function start(
  reflector: Reflector<ConfigMap>,
  reconcile: Reconcile,
  more: Partial<ControllerOptions & ManagerOptions> = {},
): { manager: Manager; stop: () => Promise<void> } {
  const backoff = { baseSeconds: 0.02, capSeconds: 0.1 }
  const controller = new Controller({
    name: "test",
    reconcile,
    sources: [watchSource(reflector)],
    logger: silentLogger,
    backoff,
    ...more,
  })
  const manager = new Manager({ reflectors: [reflector], controllers: [controller], logger: silentLogger, ...more })
  const stopping = new AbortController()
  const ended = manager.run(stopping.signal)
  const stop = (): Promise<void> => {
    stopping.abort(new Error("test over"))
    return ended
  }
  running.push({ stop })
  return { manager, stop }
}

function make(label: string, name: string): Promise<ConfigMap> {
  return client.create(CONFIG_MAPS, { metadata: { namespace, name, labels: { test: label } }, data: { n: "0" } })
}

const refOf = (key: string): { namespace: string; name: string } => ({
  namespace,
  name: key.slice(namespace.length + 1),
})

describe("a controller on a real API server", () => {
  test("reconciles each object, including those created before the controller's start", async () => {
    await make("goal", "goal-before")
    const reflector = reflect("goal")
    const { manager } = start(reflector, async (key) => {
      const found = reflector.store.getByKey(key)
      if (found === undefined || found.data?.["done"] === "yes") return
      await client.patch(CONFIG_MAPS, refOf(key), { merge: { data: { done: "yes" } } })
    })
    await make("goal", "goal-after")
    const done = async (name: string): Promise<boolean> =>
      (await client.get(CONFIG_MAPS, { namespace, name })).data?.["done"] === "yes"
    await until("both done", async () => (await done("goal-before")) && (await done("goal-after")))
    expect(manager.readiness()).toEqual({ ready: true, reasons: [], leading: true })
  })

  test("never acts on a cache that lacks its own last write", async () => {
    await make("stale", "counter")
    const reflector = reflect("stale")
    const stale: string[] = []
    let written = 0
    start(reflector, async (key, { wrote }) => {
      const found = reflector.store.getByKey(key)
      const shown = Number(found?.data?.["n"])
      if (shown !== written) stale.push(`shown ${shown}, written ${written}`)
      if (shown >= 50) return
      const answer = await client.patch(CONFIG_MAPS, refOf(key), { merge: { data: { n: String(++written) } } })
      wrote(reflector.store, answer)
      // Requeued at once, so only the expectation prevents a stale read.
      return { requeueAfter: 0 }
    })
    await until("fifty steps", () => written >= 50)
    expect(stale).toEqual([])
  })

  test("waits until the controller's cache shows its own deletion", async () => {
    const object = await make("deleted", "victim")
    const reflector = reflect("deleted")
    let deletions = 0
    start(reflector, async (key, { deleted }) => {
      if (reflector.store.getByKey(key) === undefined) return
      deletions++
      await client.delete(CONFIG_MAPS, refOf(key))
      deleted(reflector.store, object)
      return { requeueAfter: 0 }
    })
    await until("the object is deleted", () => reflector.store.size === 0 && deletions > 0)
    expect(deletions).toBe(1)
  })

  test("retries after thrown errors, also synchronous ones, but not terminal ones, and continues with other objects", async () => {
    for (const name of ["sync-panic", "rejects", "terminal", "fine"]) await make("errors", name)
    const tries = new Map<string, number>()
    start(reflect("errors"), (key) => {
      const { name } = refOf(key)
      const count = (tries.get(name) ?? 0) + 1
      tries.set(name, count)
      if (name === "sync-panic" && count < 4) throw new TypeError("undefined is not a function")
      if (name === "rejects" && count < 4) return Promise.reject(new Error("not yet"))
      if (name === "terminal") return Promise.reject(new TerminalError("never"))
      return Promise.resolve()
    })
    await until("four tries", () => tries.get("sync-panic") === 4 && tries.get("rejects") === 4)
    expect(tries.get("terminal")).toBe(1)
    expect(tries.get("fine")).toBe(1)
  })

  test("requeues after requeueAfter, and never runs one key on two workers", async () => {
    await make("again", "again")
    let runs = 0
    let inside = 0
    let most = 0
    const reflector = reflect("again")
    start(
      reflector,
      async () => {
        most = Math.max(most, ++inside)
        runs++
        await new Promise((resolve) => setTimeout(resolve, 5))
        inside--
        return runs < 5 ? { requeueAfter: 0.01 } : undefined
      },
      { workers: 8 },
    )
    await client.patch(CONFIG_MAPS, { namespace, name: "again" }, { merge: { data: { n: "1" } } })
    await until("five runs", () => runs >= 5)
    expect(most).toBe(1)
  })
})

describe("a manager", () => {
  const electorOptions = (identity: string, lease: string): LeaderElectorOptions => ({
    client,
    lease: { namespace, name: lease },
    identity,
    logger: silentLogger,
    leaseSeconds: 60,
    renewDeadlineSeconds: 40,
    retrySeconds: 0.1,
  })
  const elector = (identity: string, lease: string): LeaderElector => new LeaderElector(electorOptions(identity, lease))

  test("finishes pending reconciles, then releases the lease, and only then a second manager reconciles", async () => {
    await make("drain", "drain")
    const log: string[] = []
    let finish = (): void => undefined
    const slow = new Promise<void>((resolve) => {
      finish = resolve
    })
    const first = start(
      reflect("drain"),
      async () => {
        log.push("first begins")
        await slow
        log.push("first ends")
      },
      { elector: elector("first", "drain") },
    )
    await until("the first reconciles", () => log.length === 1)
    const second = start(
      reflect("drain"),
      async () => {
        log.push("second")
      },
      { elector: elector("second", "drain") },
    )
    await until("the standby is ready", () => second.manager.readiness().ready)
    expect(second.manager.readiness().leading).toBe(false)
    const stopped = first.stop()
    finish()
    await stopped
    await until("the second reconciles", () => log.includes("second"))
    expect(log).toEqual(["first begins", "first ends", "second"])
  })

  test("aborts a reconcile that does not finish in time", async () => {
    await make("stuck", "stuck")
    let reason: unknown
    const { stop } = start(
      reflect("stuck"),
      (_, { signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => {
            reason = signal.reason
            reject(reason as Error)
          })
          setTimeout(() => void stop(), 0)
        }),
      { drainSeconds: 0.1 },
    )
    await until("the abort", () => reason)
    await stop()
    expect(String(reason)).toContain("stopping took too long")
  })

  test("stops every controller at the first reconcile that finds the lease lost, with one line, and leads again", async () => {
    const lines: string[] = []
    const record = (_: object, line: string): void => void lines.push(line)
    const logger = { ...silentLogger, warn: record, error: record }
    // A thawed leader whose lease ran out: every action is refused until the next term.
    let isFrozen = true
    const attempts: string[] = []
    const reconciled = new Set<string>()
    const keys = Array.from({ length: 500 }, (_, i) => `namespace-${i}/object`)
    const controllers = ["one", "two"].map((name) => {
      const subscribe = (add: (key: string) => void) => {
        for (const key of keys) add(key)
        return () => {
          isFrozen = false
        }
      }
      const reconcile = async (key: string): Promise<void> => {
        if (!isFrozen) return void reconciled.add(`${name} ${key}`)
        attempts.push(key)
        throw new NotLeaderError("this replica no longer holds the lease")
      }
      return new Controller({ name, reconcile, sources: [{ subscribe, whenSynced: async () => undefined }], logger })
    })
    const frozen = new LeaderElector({ ...electorOptions("thawed", "thawed"), logger })
    start(reflect("thawed"), async () => undefined, { controllers, elector: frozen, logger })
    await until("the next term", () => reconciled.size === 2 * keys.length)
    expect(lines).toEqual(["lost the lease: it had expired when a controller checked it"])
    expect(attempts.length).toBeLessThanOrEqual(2 * 4)
  })

  test("starts no controller before every cache is filled, including caches without a controller", async () => {
    await make("first", "first-one")
    const filled = Promise.withResolvers<void>()
    const slow = reflect("none")
    const slowFilled: RunnableReflector = {
      resource: slow.resource,
      run: (signal) => slow.run(signal),
      synced: false,
      whenSynced: () => filled.promise,
      idleSeconds: () => slow.idleSeconds(),
    }
    const reflector = reflect("first")
    const reconciled: string[] = []
    start(reflector, async (key) => void reconciled.push(key), { reflectors: [reflector, slowFilled] })
    await reflector.whenSynced(AbortSignal.timeout(60_000))
    // Two more round trips to the API server: a started controller would have reconciled by then.
    await make("none", "none-one")
    await slow.store.waitUntil(() => slow.store.list().length === 1, AbortSignal.timeout(60_000))
    expect(reconciled).toEqual([])
    filled.resolve()
    await until("the first reconcile", () => reconciled.length > 0)
  })

  test("starts no controller before the sources of all controllers have synced", async () => {
    await make("both", "both-one")
    const filled = Promise.withResolvers<void>()
    const reflector = reflect("both")
    const reconciled: string[] = []
    const logger = silentLogger
    const controllers = [
      new Controller({
        name: "fast",
        reconcile: async (key) => void reconciled.push(key),
        sources: [watchSource(reflector)],
        logger,
      }),
      new Controller({
        name: "slow",
        reconcile: async () => undefined,
        sources: [{ subscribe: () => () => undefined, whenSynced: () => filled.promise }],
        logger,
      }),
    ]
    start(reflector, async () => undefined, { controllers })
    await reflector.whenSynced(AbortSignal.timeout(60_000))
    // The cache shows another change: a started controller would have reconciled the first object by then.
    await make("both", "both-two")
    await reflector.store.waitUntil(() => reflector.store.list().length === 2, AbortSignal.timeout(60_000))
    expect(reconciled).toEqual([])
    filled.resolve()
    await until("the first reconcile", () => reconciled.length > 0)
  })

  test("stops the controllers with the error of a leader's task that fails", async () => {
    const reflector = reflect("task")
    const manager = new Manager({
      reflectors: [reflector],
      controllers: [
        new Controller({
          name: "idle",
          reconcile: async () => undefined,
          sources: [watchSource(reflector)],
          logger: silentLogger,
        }),
      ],
      leaderTasks: [() => Promise.reject(new Error("the sweep broke"))],
      logger: silentLogger,
    })
    await expect(manager.run(new AbortController().signal)).rejects.toThrow("the sweep broke")
  })
})
