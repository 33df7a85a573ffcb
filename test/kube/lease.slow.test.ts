import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CLIENT_REASONS, KubeError } from "../../src/core/kube/errors.ts"
import {
  abilitiesOfLeader,
  LeaderElector,
  type LeaderElectorOptions,
  LeadershipLostError,
  type Lease,
  leases,
} from "../../src/core/kube/lease.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { ChaosProxy, status } from "../harness/chaos-proxy.ts"
import { until } from "../harness/eventually.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const namespace = testNamespace("lease")
type Times = Pick<LeaderElectorOptions, "leaseSeconds" | "renewDeadlineSeconds" | "retrySeconds" | "clock">

const TIMES: Times = { leaseSeconds: 3, renewDeadlineSeconds: 2, retrySeconds: 0.2 }

/** A candidate that leads until it is stopped, and a record of its states. */
class Candidate {
  readonly elector: LeaderElector
  leading = false
  lost: unknown
  terms = 0
  readonly #stop = new AbortController()
  readonly #running: Promise<void>

  constructor(identity: string, lease: string, client: LeaderElectorOptions["client"], times = TIMES) {
    this.elector = new LeaderElector({
      client,
      lease: { namespace, name: lease },
      identity,
      logger: silentLogger,
      ...times,
    })
    this.#running = this.elector.run((stop, lost) => this.#lead(stop, lost), this.#stop.signal)
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }

  async #lead(stop: AbortSignal, lost: AbortSignal): Promise<void> {
    this.leading = true
    this.terms++
    await new Promise((resolve) => stop.addEventListener("abort", resolve, { once: true }))
    if (lost.aborted) this.lost = lost.reason
    this.leading = false
  }
}

let proxy: ChaosProxy
beforeAll(async () => {
  proxy = await ChaosProxy.start(kubeConfig())
})
afterAll(() => proxy.close())

describe("LeaderElector on a real API server", () => {
  test("shows the abilities of the process that leads, and no one else's", async () => {
    const client = new KubeClient(kubeConfig())
    const lease = { namespace, name: "abilities" }
    const lead = async (identity: string, abilities: readonly string[]) => {
      const stop = new AbortController()
      const leading = Promise.withResolvers<void>()
      const elector = new LeaderElector({ client, lease, identity, abilities, logger: silentLogger, ...TIMES })
      const ended = elector.run(async (end) => {
        leading.resolve()
        await new Promise((resolve) => end.addEventListener("abort", resolve, { once: true }))
      }, stop.signal)
      await leading.promise
      return async () => {
        stop.abort()
        await ended
      }
    }
    const shown = async () => {
      const abilities = abilitiesOfLeader(await client.get(leases, lease))
      return abilities && [...abilities]
    }
    const endFirst = await lead("first", ["after", "warm"])
    expect(await shown()).toEqual(["after", "warm"])
    await endFirst()
    expect(await shown()).toBeUndefined()
    const endSecond = await lead("second", [])
    expect(await shown()).toEqual([])
    await endSecond()
    const endThird = await lead("third", ["after"])
    // A program that knows no abilities takes the Lease, and keeps the text of the holder before it.
    const { metadata, spec } = await client.get(leases, lease)
    await endThird()
    const free = await client.get(leases, lease)
    const taken = { ...free, metadata: { ...free.metadata, annotations: metadata.annotations } }
    await client.replace(leases, { ...taken, spec: { ...spec, holderIdentity: "older" } } as typeof free)
    expect(await shown()).toEqual([])
  })

  test("takes over a lease only after the fence of a disconnected leader has fallen", async () => {
    // A test moves this clock, so no term ends because of a pause of the machine.
    const clock = new ShiftedClock()
    const times = { leaseSeconds: 300, renewDeadlineSeconds: 200, retrySeconds: 1, clock }
    const cutOff = new Candidate("cut-off", "fence", new KubeClient(proxy.kubeConfig()), times)
    await until("the first leads", () => cutOff.leading)
    const other = new Candidate("other", "fence", new KubeClient(kubeConfig()), times)
    await until("the other sees the holder", () => other.elector.holder === "cut-off")
    expect([cutOff.elector.isHeld(), other.elector.isHeld(0)]).toEqual([true, false])
    for (let i = 0; i < 1000; i++) proxy.inject("any", { code: 503, body: status(503, "ServiceUnavailable") })
    clock.advance(201)
    await until("the first steps down", () => !cutOff.leading)
    expect([cutOff.elector.isHeld(0), other.leading]).toEqual([false, false])
    let both = 0
    await until("the other takes over", () => {
      clock.advance(1)
      if (cutOff.elector.isHeld(0) && other.elector.isHeld(0)) both++
      return other.leading
    })
    expect(both).toBe(0)
    expect(cutOff.elector.isHeld(0)).toBe(false)
    expect(cutOff.leading).toBe(false)
    expect(cutOff.lost).toBeInstanceOf(LeadershipLostError)
    proxy.calm()
    await until("the first knows its successor", () => cutOff.elector.holder === "other")
    await other.stop()
    await until("the first leads again", () => cutOff.terms === 2 && cutOff.leading)
    const lease = await new KubeClient(kubeConfig()).get(leases, { namespace, name: "fence" })
    expect(lease.spec).toMatchObject({ holderIdentity: "cut-off", leaseTransitions: 2 })
    await cutOff.stop()
  })

  test("releases the lease on a clean stop, so the next candidate need not wait for its expiry", async () => {
    const client = new KubeClient(kubeConfig())
    const slow = { leaseSeconds: 300, renewDeadlineSeconds: 200, retrySeconds: 0.2 }
    const first = new Candidate("first", "handover", client, slow)
    await until("the first leads", () => first.leading)
    await first.stop()
    const released = await client.get(leases, { namespace, name: "handover" })
    expect(released.spec.holderIdentity ?? "").toBe("")
    expect(first.elector.isHeld(0)).toBe(false)
    const second = new Candidate("second", "handover", client, slow)
    await until("the second leads", () => second.leading)
    await second.stop()
  })

  test("releases the lease when it stops during a renewal whose response is lost", async () => {
    const client = new KubeClient(kubeConfig())
    let unheard = 0
    const muffled: LeaderElectorOptions["client"] = {
      get: client.get.bind(client),
      create: client.create.bind(client),
      replace: async (resource, object, options = {}) => {
        const written = await client.replace(resource, object, options)
        if ((object as Partial<Lease>).spec?.holderIdentity === "") return written
        unheard++
        await sleep(1000 * (options.timeoutSeconds ?? Number.POSITIVE_INFINITY))
        throw new KubeError({ code: 0, reason: CLIENT_REASONS.timeout, message: "no answer" })
      },
    }
    const leader = new Candidate("leader", "unheard", muffled, { ...TIMES, leaseSeconds: 300 })
    await until("it renews", () => unheard === 1)
    await leader.stop()
    const released = await client.get(leases, { namespace, name: "unheard" })
    expect(released.spec.holderIdentity ?? "").toBe("")
  })

  test.each(["create", "replace"] as const)(
    "releases the lease when it stops while it claims it by %s",
    async (write) => {
      const client = new KubeClient(kubeConfig())
      const name = `claimed-${write}`
      if (write === "replace") await client.create(leases, { metadata: { namespace, name }, spec: {} })
      const [sent, stopped] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
      let written: Promise<unknown> = sent.promise
      const delayed = {
        get: client.get.bind(client),
        create: client.create.bind(client),
        replace: client.replace.bind(client),
        // The write takes effect after the stop, whether its answer is awaited or not.
        [write]: async (...[resource, object, { signal, ...options } = {}]: Parameters<typeof client.create>) => {
          const answer = stopped.promise.then(() => client[write](resource, object, options))
          written = answer
          sent.resolve()
          const aborted = new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)))
          return await Promise.race([answer, aborted])
        },
      }
      const candidate = new Candidate("candidate", name, delayed as LeaderElectorOptions["client"])
      await sent.promise
      const stopping = candidate.stop()
      stopped.resolve()
      await Promise.all([stopping, written])
      const released = await client.get(leases, { namespace, name })
      expect(released.spec.holderIdentity ?? "").toBe("")
      expect(candidate.terms).toBe(0)
    },
  )

  test("never lets two of many candidates hold the lease, through losses and handovers", async () => {
    const candidates = Array.from(
      { length: 4 },
      (_, n) => new Candidate(`c${n}`, "crowd", new KubeClient(n < 2 ? proxy.kubeConfig() : kubeConfig())),
    )
    // Stopped candidates count too: they may not hold the lease beside their successor.
    const all = [...candidates]
    let most = 0
    const look = (): number => {
      const holders = all.filter(({ elector }) => elector.isHeld(0)).length
      most = Math.max(most, holders)
      return holders
    }
    const watching = setInterval(look, 2)
    await until("one leads", () => look() === 1)
    for (let i = 0; i < 6; i++) proxy.inject("any", { code: 503, body: status(503, "ServiceUnavailable") })
    while (candidates.length > 0) {
      const leader = candidates.findIndex(({ leading }) => leading)
      if (leader !== -1) await candidates.splice(leader, 1)[0]?.stop()
      await until("the next leads", () => candidates.length === 0 || candidates.some(({ leading }) => leading))
    }
    clearInterval(watching)
    proxy.calm()
    expect(most).toBe(1)
  })

  test("lowers the fence by the calendar too, because the monotonic clock stops while a machine is suspended", async () => {
    const clock = new ManualClock()
    const client = new KubeClient(kubeConfig())
    const elector = new LeaderElector({
      client,
      lease: { namespace, name: "clocks" },
      identity: "x",
      logger: silentLogger,
      clock,
      ...TIMES,
    })
    const stop = new AbortController()
    let leading = false
    const running = elector.run(async (end) => {
      leading = true
      await new Promise((resolve) => end.addEventListener("abort", resolve, { once: true }))
    }, stop.signal)
    await until("it leads", () => leading)
    expect(elector.isHeld(1)).toBe(true)
    clock.setCalendar(600)
    expect(elector.isHeld(1)).toBe(false)
    clock.setCalendar(-1200)
    expect(elector.isHeld(1)).toBe(true)
    // No timer of the elector is due yet, so it renews nothing here.
    clock.advance(0.1)
    expect(elector.isHeld(2.95)).toBe(false)
    expect(elector.isHeld(2.8)).toBe(true)
    stop.abort()
    await running
  })

  test("rejects unsafe times", () => {
    const client = new KubeClient(kubeConfig())
    const options = { client, lease: { namespace, name: "x" }, identity: "x", logger: silentLogger }
    expect(() => new LeaderElector({ ...options, leaseSeconds: 10, renewDeadlineSeconds: 10 })).toThrow(RangeError)
  })
})
