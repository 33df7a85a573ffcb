import { afterAll, afterEach, beforeEach, expect, it } from "vitest"
import type { PriceQuestion, PriceReader, QuotedPrices } from "../../src/clouds/prices.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type Secret } from "../../src/core/kube/core.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import type { EventNote } from "../../src/core/kube/events.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { CredentialsError, TransientError } from "../../src/core/outbound/errors.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { LiveCatalogue } from "../../src/market/catalogue/live.ts"
import { decodePrices, PRICES_CONFIG_MAP } from "../../src/market/catalogue/stored-prices.ts"
import { watchPrices } from "../../src/market/catalogue/watch.ts"
import { createTable, joinTables } from "../../src/market/router/table.ts"
import { type Fence, NotLeaderError } from "../../src/operator/fence.ts"
import { PriceRefresher } from "../../src/operator/prices/refresher.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { offerOf } from "../harness/builders.ts"
import { eventually } from "../harness/eventually.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"

/** One ConfigMap for each test: a cache may still show the one that the previous test has just deleted. */
const namespaces = ["one", "two", "three", "four", "five", "six", "seven"].map((name) =>
  testNamespace(`refresher-${name}`),
)
const client = new KubeClient(kubeConfig())
const HOUR = 3600
const offers = ["us-east-1", "eu-west-1"].map((region) =>
  offerOf({ cloud: "aws", region, instanceType: "m7i.large", hourlyPriceUsd: 0.1, priceDate: "2026-01-01" }),
)
const restricted = { cloud: "aws", name: "us-gov-west-1", groups: ["us"], restricted: true }
const list = joinTables(createTable(offers), { ...createTable([]), regions: [restricted] })

const quoted = (region: string, usd: number): QuotedPrices => {
  return { region, provisioning: "onDemand", prices: new Map([["m7i.large", usd]]) }
}

/** Returns a refresher over the real API server, with clouds whose answers the test controls. */
class Fixture {
  readonly clock = new ShiftedClock()
  readonly notes: EventNote[] = []
  /** Keys with which a cloud was asked. */
  readonly asked: string[] = []
  readonly questions: PriceQuestion[] = []
  answer: PriceReader = async function* () {}
  fence: Fence = () => undefined
  readonly #connections = new IndexedStore<StoredConnection>()
  readonly #secrets = new IndexedStore<Secret>()
  readonly #projects = new IndexedStore<StoredProject>()
  readonly #stop = new AbortController()
  readonly #namespace: string
  readonly #stored: ReturnType<typeof watchPrices>
  readonly #watching: Promise<void>
  refresher: PriceRefresher

  constructor(namespace: string) {
    this.#namespace = namespace
    this.#stored = watchPrices({
      client,
      systemNamespace: namespace,
      catalogue: new LiveCatalogue(list),
      logger: silentLogger,
    })
    this.#watching = this.#stored.run(this.#stop.signal)
    this.refresher = this.successor()
    this.#projects.put({
      metadata: { name: "p", uid: "p", resourceVersion: "1" },
      spec: { namespace: "n" },
      status: { namespace: "n" },
    } as unknown as StoredProject)
  }

  /** Another leader, which knows only the stored state. */
  successor(): PriceRefresher {
    const sealer = new Sealer(new KeyringEncryption(() => Promise.reject(new Error("nothing is sealed here"))))
    const reader: PriceReader = (question) => {
      this.asked.push(question.credentials["access_key_id"] ?? "")
      this.questions.push(question)
      return this.answer(question)
    }
    return new PriceRefresher({
      client,
      systemNamespace: this.#namespace,
      providers: { aws: { prices: { list: reader } } },
      connections: this.#connections,
      sources: { secrets: { store: this.#secrets }, projects: { store: this.#projects }, sealer },
      stored: this.#stored,
      list,
      hours: { list: 12, market: 1 },
      fence: () => this.fence(),
      clock: this.clock,
      recorder: { record: (_, note) => this.notes.push(note) },
      logger: silentLogger,
    })
  }

  /** Returns a connection with this key, verified or not. */
  connect(key: string, isVerified = true): void {
    const secret = { name: key, namespace: "n", uid: key, resourceVersion: "1" }
    const data = {
      access_key_id: btoa(key.toUpperCase().padEnd(20, "0")),
      secret_access_key: btoa(`secret-of-${key}`.padEnd(40, "0")),
    }
    this.#secrets.put({ metadata: secret, type: "berth.dev/connection", data })
    const ready = { type: "Ready", status: isVerified ? "True" : "False", observedGeneration: 1 }
    this.#connections.put({
      metadata: { name: key, namespace: "n", uid: key, resourceVersion: "1", generation: 1 },
      spec: { type: "aws", credentialsSecretRef: { name: key } },
      status: { conditions: [ready], verifiedCredentials: `secret/${key}/1` },
    } as unknown as StoredConnection)
  }

  async round(): Promise<void> {
    await this.#stored.whenSynced(AbortSignal.timeout(120_000))
    await this.refresher.round(this.#stop.signal)
  }

  /** Returns what the condition Prices of a connection says. */
  states(key: string) {
    return this.refresher.statesFor(this.#connections.get({ namespace: "n", name: key }) as StoredConnection)
  }

  /** Returns the stored prices when the refresher has them. */
  async written(): Promise<string[]> {
    const ref = { namespace: this.#namespace, name: PRICES_CONFIG_MAP }
    const stored = await ifFound(client.get(CONFIG_MAPS, ref))
    await eventually(() => {
      const known = this.#stored.store.get(ref)?.metadata.resourceVersion
      expect(known).toBe(stored?.metadata.resourceVersion)
    })
    const content = stored?.binaryData?.["aws.list"]
    const prices = content === undefined ? [] : await decodePrices(Buffer.from(content, "base64"))
    return prices
      .map((quoted) => `${quoted.region} ${quoted.prices.get("m7i.large")} at ${this.hoursAt(quoted.time)} h`)
      .sort()
  }

  hoursAt(time: string): number {
    return Math.round((Date.parse(time) - Date.now()) / 1000 / HOUR)
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.#watching
  }
}

let its: Fixture
beforeEach(() => {
  its = new Fixture(namespaces.pop() ?? "")
  its.answer = async function* () {
    yield quoted("us-east-1", 0.11)
    yield quoted("eu-west-1", 0.12)
  }
})
afterEach(() => its.close())
afterAll(() => client.close())

it("the refresher asks no cloud without a verified connection, and then only for its ordinary regions", async () => {
  expect(its.refresher.ages()).toEqual([])
  its.connect("a", false)
  await its.round()
  expect(its.asked).toEqual([])
  const age = (its.clock.now().getTime() - Date.parse("2026-01-01")) / 1000
  expect(its.refresher.ages()).toEqual([{ cloud: "aws", prices: "list", seconds: expect.closeTo(age, -1) }])
  its.connect("b")
  await its.round()
  expect(await its.written()).toEqual(["eu-west-1 0.12 at 0 h", "us-east-1 0.11 at 0 h"])
  expect(its.questions[0]?.regions).toEqual(["us-east-1", "eu-west-1"])
  expect(its.questions[0]?.machines.map(({ instanceType }) => instanceType)).toEqual(["m7i.large"])
  expect(its.refresher.ages()).toEqual([{ cloud: "aws", prices: "list", seconds: expect.closeTo(0, -2) }])
})

it("the refresher asks again after its interval, under any leader", async () => {
  its.connect("a")
  await its.round()
  await its.written()
  await its.round()
  its.refresher = its.successor()
  its.clock.advance(10 * HOUR)
  await its.round()
  expect(its.asked).toHaveLength(1)
  its.clock.advance(4 * HOUR)
  await its.round()
  expect(its.asked).toHaveLength(2)
  expect(await its.written()).toEqual(["eu-west-1 0.12 at 14 h", "us-east-1 0.11 at 14 h"])
})

it("the refresher keeps the former prices if a cloud fails, reports it, and retries soon, then less often", async () => {
  its.connect("a")
  await its.round()
  const before = await its.written()
  its.clock.advance(14 * HOUR)
  its.answer = () => {
    throw new TransientError("NoAnswer", "secret-of-a00000 gave no answer")
  }
  await its.round()
  expect(await its.written()).toEqual(before)
  expect(its.notes).toEqual([expect.objectContaining({ type: "Warning", reason: "PricesNotRefreshed" })])
  expect(its.notes[0]?.message).toMatch(
    /^not all list prices of aws could be refreshed; for the others routing uses the prices of 20.*Z: /,
  )
  expect(its.notes[0]?.message).not.toContain("secret-of-a")
  await its.round()
  expect(its.asked).toHaveLength(2)
  its.clock.advance(601)
  await its.round()
  expect(its.asked).toHaveLength(3)
  // Ten minutes at least. Some of them may have passed already.
  its.clock.advance(580)
  await its.round()
  expect(its.asked).toHaveLength(3)
  expect(its.refresher.ages()[0]?.seconds).toBeGreaterThan(14 * HOUR)
})

it("the refresher knows for each connection how current the prices are, and why they are not", async () => {
  const shipped = { what: "on-demand and spot", date: "2026-01-01", isShipped: true, isCurrent: false }
  const changes: unknown[] = []
  const end = its.refresher.onChange((cloud) => changes.push(cloud))
  its.connect("a")
  its.connect("b")
  expect(its.states("a")).toEqual([shipped])
  its.answer = (question) => {
    if (question.credentials["access_key_id"]?.startsWith("A"))
      throw new CredentialsError("AccessDenied", "secret-of-a00000 may not")
    throw new TransientError("NoAnswer", "no answer")
  }
  await its.round()
  const message = expect.stringMatching(/AccessDenied.*may not/)
  expect(its.states("a")).toEqual([{ ...shipped, failure: { isForbidden: true, message } }])
  expect(JSON.stringify(its.states("a"))).not.toContain("secret-of-a")
  expect(its.states("b")).toEqual([{ ...shipped, failure: { isForbidden: false, message: "NoAnswer: no answer" } }])
  its.connect("c")
  expect(its.states("c")).toEqual([{ ...shipped, failure: { isForbidden: false } }])
  expect(changes).toContain("aws")

  its.answer = async function* () {
    yield quoted("us-east-1", 0.11)
  }
  its.clock.advance(HOUR)
  await its.round()
  await its.written()
  const today = its.clock.now().toISOString().slice(0, 10)
  const current = { ...shipped, date: today, isShipped: false, isCurrent: true }
  for (const key of ["a", "b", "c"]) expect(its.states(key)).toEqual([current])
  expect(changes).toContain(undefined)
  its.clock.advance(25 * HOUR)
  expect(its.states("a")).toEqual([{ ...current, isCurrent: false }])
  end()
})

it("the refresher keeps the former prices of regions that don't answer", async () => {
  its.connect("a")
  await its.round()
  await its.written()
  its.clock.advance(14 * HOUR)
  its.answer = async function* () {
    yield quoted("us-east-1", 0.09)
    throw new TransientError("NoAnswer", "eu-west-1: no answer")
  }
  await its.round()
  expect(await its.written()).toEqual(["eu-west-1 0.12 at 0 h", "us-east-1 0.09 at 14 h"])
  expect(its.notes[0]?.message).toContain("eu-west-1: no answer")
})

it("the refresher asks with the next connection if the first lacks the right, and reports nothing then", async () => {
  for (const key of ["a", "b", "c"]) its.connect(key)
  const good = its.answer
  its.answer = (question) => {
    if (question.credentials["access_key_id"]?.startsWith("C")) return good(question)
    throw new CredentialsError("AccessDenied", "may not")
  }
  await its.round()
  expect(its.asked.map(([first]) => first)).toEqual(["A", "B", "C"])
  expect(await its.written()).toHaveLength(2)
  expect(its.notes).toEqual([])
})

it("the refresher writes nothing after it has lost the lead", async () => {
  its.connect("a")
  its.fence = () => {
    throw new NotLeaderError("another one leads")
  }
  await its.round()
  expect(its.asked).toHaveLength(1)
  expect(await its.written()).toEqual([])
})
