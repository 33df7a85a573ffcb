import { afterAll, beforeAll, expect, test } from "vitest"
import type { Logger } from "../../src/core/apis/logger.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap, type KubeEvent } from "../../src/core/kube/core.ts"
import { KubeError } from "../../src/core/kube/errors.ts"
import { EventRecorder, type EventRecorderOptions, events } from "../../src/core/kube/events.ts"
import { kubeConfig, kubectl, testNamespace } from "../control-plane.ts"
import { ChaosProxy, status } from "../harness/chaos-proxy.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const namespace = testNamespace("events")
let proxy: ChaosProxy
let client: KubeClient
beforeAll(async () => {
  client = new KubeClient(kubeConfig())
  proxy = await ChaosProxy.start(kubeConfig())
})
afterAll(() => proxy.close())

function recorder(
  through: EventRecorderOptions["client"] = client,
  logger: Logger = silentLogger,
  queueSize = 1000,
): EventRecorder {
  return new EventRecorder({ client: through, component: "berth-test", instance: "berth-test-1", logger, queueSize })
}

function make(name: string): Promise<ConfigMap> {
  return client.create(CONFIG_MAPS, { metadata: { namespace, name } })
}

async function eventsOf(name: string): Promise<{ reason: string; message: string; count: number }[]> {
  const { items } = await client.list(events, { namespace, fieldSelector: `involvedObject.name=${name}` })
  return items
    .map(({ reason, message, count }) => ({ reason, message, count }))
    .sort((a, b) => a.reason.localeCompare(b.reason))
}

test("the recorder shows an object's events in kubectl describe, with a count for repeated ones", async () => {
  const object = await make("story")
  const events = recorder()
  events.record(object, { type: "Normal", reason: "Placed", message: "on t4g.nano in us-east-1" })
  for (let i = 0; i < 4; i++) events.record(object, { type: "Warning", reason: "OfferRefused", message: "no capacity" })
  await events.flush(60)
  expect(await eventsOf("story")).toEqual([
    { reason: "OfferRefused", message: "no capacity", count: 4 },
    { reason: "Placed", message: "on t4g.nano in us-east-1", count: 1 },
  ])
  const described = await kubectl(["describe", "configmap", "story", "-n", namespace])
  expect(described).toMatch(/Normal\s+Placed\s+\S+\s+berth-test\s+on t4g.nano in us-east-1/)
  expect(described).toMatch(/Warning\s+OfferRefused\s+\S+ \(x4 over \S+\)\s+berth-test\s+no capacity/)
})

/** Returns a client whose writes of events wait until they are released, and the events that it has been asked to write. */
function heldClient() {
  const asked: string[] = []
  const held: (() => void)[] = []
  const hold = async (reason: string) => {
    asked.push(reason)
    await new Promise<void>((resolve) => held.push(resolve))
  }
  const create = async (_: unknown, event: KubeEvent) => {
    await hold(`${event.involvedObject.name} ${event.reason} ${event.count}`)
    return event
  }
  const patch = async (_: unknown, __: unknown, { merge }: { merge: { count: number } }) => {
    await hold(`count ${merge.count}`)
    return {}
  }
  const release = async () => {
    for (const answer of held.splice(0)) answer()
    // A writer takes its next event within a few turns of the queue of promises.
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
  }
  const client = { create, patch } as unknown as EventRecorderOptions["client"]
  return { client, asked, release, waiting: () => held.length }
}

function about(name: string) {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { namespace, name, uid: name } }
}

test("the recorder writes events of four objects at once, those of one object in their order, and repetitions as one count", async () => {
  const { client, asked, release, waiting } = heldClient()
  const events = recorder(client)
  for (const reason of ["A", "B", "B", "B"]) events.record(about("x"), { type: "Normal", reason, message: "m" })
  for (const name of ["y", "z", "u", "v"]) events.record(about(name), { type: "Normal", reason: "A", message: "m" })
  expect(asked).toEqual(["x A 1", "y A 1", "z A 1", "u A 1"])
  while (waiting() > 0) await release()
  expect(asked.slice(4).toSorted()).toEqual(["v A 1", "x B 3"])
  await events.flush(60)
})

test("the recorder drops no Warning, however many events wait", async () => {
  const { client, asked, release, waiting } = heldClient()
  const events = recorder(client, silentLogger, 2)
  for (let n = 0; n < 10; n++) {
    events.record(about(`o-${n}`), { type: "Normal", reason: "N", message: "m" })
    events.record(about(`o-${n}`), { type: "Warning", reason: "W", message: "m" })
  }
  while (waiting() > 0) await release()
  await events.flush(60)
  expect(asked.filter((reason) => reason.includes(" W "))).toHaveLength(10)
  expect(asked.filter((reason) => reason.includes(" N ")).length).toBeLessThan(10)
})

test("the recorder writes a Warning when the API server answers again, also after many attempts", async () => {
  const clock = new ManualClock()
  let attempts = 0
  const create = async (_: unknown, event: KubeEvent) => {
    attempts++
    if (attempts <= 20) throw new KubeError({ code: 503, reason: "ServiceUnavailable", message: "down" })
    return event
  }
  const client = { create } as unknown as EventRecorderOptions["client"]
  const events = new EventRecorder({ client, component: "t", instance: "t", logger: silentLogger, clock })
  events.record(about("late"), { type: "Warning", reason: "VMLost", message: "m" })
  while (attempts <= 20) {
    await new Promise(setImmediate)
    clock.advance(20)
  }
  await events.flush(60)
  expect(attempts).toBe(21)
})

test("the recorder writes events of an object without a namespace to default", async () => {
  const events = recorder()
  const cluster = { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace, uid: "u-1" } }
  events.record(cluster, { type: "Normal", reason: "Adopted", message: "hello" })
  await events.flush(60)
  expect(
    await kubectl(["get", "events", "-n", "default", "--field-selector", `involvedObject.name=${namespace}`]),
  ).toContain("Adopted")
})

test("the recorder continues a count after its event has expired", async () => {
  const object = await make("forgotten")
  const recording = recorder()
  recording.record(object, { type: "Normal", reason: "Seen", message: "again" })
  await recording.flush(60)
  const { items } = await client.list(events, { namespace, fieldSelector: "involvedObject.name=forgotten" })
  for (const { metadata } of items) await client.delete(events, { namespace, name: metadata.name })
  recording.record(object, { type: "Normal", reason: "Seen", message: "again" })
  await recording.flush(60)
  expect(await eventsOf("forgotten")).toEqual([{ reason: "Seen", message: "again", count: 2 }])
})

test("the recorder writes an event once although responses were lost, before and after it was stored", async () => {
  const object = await make("shaky")
  const warnings: unknown[] = []
  const logger: Logger = { ...silentLogger, warn: (fields) => warnings.push(fields) }
  const events = recorder(new KubeClient(proxy.kubeConfig()), logger)
  proxy.inject("any", { code: 503, body: status(503, "ServiceUnavailable") })
  proxy.loseAnswer()
  events.record(object, { type: "Normal", reason: "Survived", message: "it" })
  await events.flush(60)
  expect(await eventsOf("shaky")).toEqual([{ reason: "Survived", message: "it", count: 1 }])
  // The replay's AlreadyExists is a success, so no warning is logged.
  expect(warnings).toEqual([])
})

test("the recorder logs failed and dropped events, never throws, and stops within a time limit", async () => {
  const object = await make("hopeless")
  const warnings: string[] = []
  const logger: Logger = {
    ...silentLogger,
    warn: (fields, message) => warnings.push(`${message} ${JSON.stringify(fields)}`),
  }
  const unreachable = new KubeClient(proxy.kubeConfig())
  for (let i = 0; i < 100; i++) proxy.inject("any", { code: 503, body: status(503, "ServiceUnavailable") })
  const events = recorder(unreachable, logger, 3)
  for (let i = 0; i < 9; i++) events.record(object, { type: "Normal", reason: `R${i}`, message: "x" })
  await events.flush(0.3)
  proxy.calm()
  expect(warnings.join("\n")).toMatch(/events were dropped: too many, or too late \{"dropped":[5-9]/)
  expect(await eventsOf("hopeless")).toEqual([])
})
