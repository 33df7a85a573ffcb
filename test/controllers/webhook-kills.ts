import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { expect } from "vitest"
import { newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import type { ServerMeta } from "../../src/core/kube/resource.ts"
import { JOBS, WEBHOOKS } from "../../src/core/resources.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { WEBHOOK_CACHE } from "../../src/operator/caches.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import type { ControllerHarness } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { type Reply, WebhookReceiver } from "../harness/webhook-receiver.ts"
import type { WebhookOperatorOptions } from "./webhook-operator.ts"

const PROGRAM = join(import.meta.dirname, "webhook-operator.ts")

const RETRY = { firstSeconds: 0.2, factor: 1.5, longestSeconds: 2, jitter: 0.2, giveUpSeconds: 3 * 86_400 }
const SETTINGS = { retry: RETRY, timeoutSeconds: 1, writeSeconds: 10 }

type Fault = "500" | "reset" | "silent" | "slow" | "certificate"

/** Part of the messages that each fault meets. `certificate`: part of the connections, which have several messages. */
const FAULTS: readonly (readonly [fault: Exclude<Fault, "certificate">, part: number])[] = [
  ["500", 0.1],
  ["reset", 0.05],
  ["silent", 0.03],
  ["slow", 0.07],
]
const WRONG_CERTIFICATES = 0.3

const REPLIES: Record<Exclude<Fault, "certificate">, Reply> = {
  500: 500,
  reset: "reset",
  silent: "silent",
  slow: { status: 204, afterMs: 300 },
}

/** Receiver with TLS that fails at random. */
export interface UnreliableReceiver {
  receiver: WebhookReceiver
  /** File with the authority that signed its right certificate. */
  authority: string
  /** Number of failures by their kind. */
  faults: Record<Fault, number>
  stop(): Promise<void>
}

/** Starts a receiver that answers 500, resets, stays silent, is slow, or has a wrong certificate. */
export async function startUnreliable(random: () => number = Math.random): Promise<UnreliableReceiver> {
  const faults: UnreliableReceiver["faults"] = { 500: 0, reset: 0, silent: 0, slow: 0, certificate: 0 }
  const trusted = newCertificateAuthority("receivers")
  const right = trusted.issue({ commonName: "receiver", hosts: ["localhost"] })
  const wrong = [
    newCertificateAuthority("unknown").issue({ commonName: "receiver", hosts: ["localhost"] }),
    trusted.issue({ commonName: "receiver", hosts: ["other.test"] }),
  ]
  const receiver = await WebhookReceiver.start(() => {
    if (random() >= WRONG_CERTIFICATES) return right
    faults.certificate += 1
    return wrong[faults.certificate % wrong.length] ?? right
  })
  receiver.reply = () => {
    let draw = random()
    for (const [fault, part] of FAULTS) {
      if (draw < part) {
        faults[fault] += 1
        return REPLIES[fault]
      }
      draw -= part
    }
    return 204
  }
  const folder = await mkdtemp(join(tmpdir(), "berth-receiver-"))
  const authority = join(folder, "ca.pem")
  await writeFile(authority, trusted.certificate)
  const stop = async (): Promise<void> => {
    await receiver.stop()
    await rm(folder, { recursive: true })
  }
  return { receiver, authority, faults, stop }
}

/** Outcome of a run with kills. */
export interface KillReport {
  ends: number
  kills: number
  requests: number
  accepted: number
  faults: UnreliableReceiver["faults"]
  /** Ends of jobs that arrived never. */
  lost: number
  /** Accepted messages whose id had arrived before. */
  duplicates: number
  /** Ids for which messages with different content, apart from the job's progress, arrived. */
  ambiguous: number
  /** Writes of the webhook's status after its first one, per 10 seconds. */
  writesPer10Seconds: number
  /** Shortest time between two writes of the webhook's status, seconds. */
  shortestWriteSeconds: number
  statusWrites: number
  seconds: number
}

/** Operator in a process of its own. */
class OperatorProcess {
  readonly #child: ChildProcess
  readonly #printed: Promise<string>

  private constructor(options: Omit<WebhookOperatorOptions, "kubeconfig">, authority: string) {
    const argument: WebhookOperatorOptions = { kubeconfig: kubeconfigPath(), ...options }
    const env = { ...process.env, NODE_EXTRA_CA_CERTS: authority }
    const stdio: ["ignore", "pipe", "inherit"] = ["ignore", "pipe", "inherit"]
    this.#child = spawn(process.execPath, [PROGRAM, JSON.stringify(argument)], { stdio, env })
    this.#printed = text(this.#child.stdout as NodeJS.ReadableStream)
  }

  /** @param authority file with the certificate of an authority that it trusts */
  static async start(options: Omit<WebhookOperatorOptions, "kubeconfig">, authority: string): Promise<OperatorProcess> {
    const operator = new OperatorProcess(options, authority)
    await once(operator.#child.stdout as NodeJS.ReadableStream, "data")
    return operator
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL")
    await once(this.#child, "exit")
  }

  /** Stops it. Returns the durations of its reconciles of jobs, seconds. */
  async stop(): Promise<number[]> {
    this.#child.kill("SIGTERM")
    const [, durations = "[]"] = (await this.#printed).split("\n")
    return JSON.parse(durations) as number[]
  }
}

/** Creates a project, and webhooks of it. */
async function createWebhooks({ client, namespace }: ControllerHarness, url: string, names: string[]): Promise<void> {
  await confirmedProject(client, { name: namespace, organization: "o", namespace })
  const data = { secret: btoa(newSigningSecret()) }
  await client.create(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
  const spec = { url, events: ["job.*"], secretRef: { name: "hook" } }
  for (const name of names) await client.create(WEBHOOKS, { metadata: { name, namespace }, spec } as StoredWebhook)
}

/** Creates jobs that end at once. Returns their uids. */
async function endJobs({ client, namespace }: ControllerHarness, count: number): Promise<string[]> {
  const uids: string[] = []
  const submissions = Array.from({ length: count }, (_, i) => async () => {
    const job = { metadata: { name: `job-${i}`, namespace }, spec: { image: "a", cancelled: true } }
    uids.push((await client.create(JOBS, job as never)).metadata.uid)
  })
  await inParallel(submissions, 8, (task) => task())
  return uids
}

async function allSettled({ client, namespace }: ControllerHarness, count: number): Promise<void> {
  await eventually(async () => {
    const selected = { namespace, fieldSelector: "status.settled=true" }
    expect((await client.list(JOBS, selected)).items).toHaveLength(count)
  }, 600)
}

/** Ends jobs while the receiver fails at random and the operator is killed, and reports what arrived. */
export async function runWithKills(
  harness: ControllerHarness,
  { ends, kills, writeSeconds = SETTINGS.writeSeconds }: { ends: number; kills: number; writeSeconds?: number },
): Promise<KillReport> {
  const { namespace } = harness
  const { receiver, authority, faults, stop } = await startUnreliable()
  await createWebhooks(harness, receiver.url, ["hook"])
  const writes = new StatusWrites(harness)
  const startedAt = performance.now()
  const submitting = endJobs(harness, ends)
  const options = { namespace, webhooks: { ...SETTINGS, writeSeconds } }
  for (let kill = 0; kill < kills; kill++) {
    const operator = await OperatorProcess.start(options, authority)
    // The next kill comes when a part of the messages has arrived, so that each kill interrupts work.
    const goal = Math.floor((ends * (kill + 1)) / (kills + 2))
    await eventually(() => expect(arrivedIn(receiver)).toBeGreaterThanOrEqual(goal), 300)
    await operator.kill()
  }
  const last = await OperatorProcess.start(options, authority)
  const uids = await submitting
  await eventually(() => expect(arrivedIn(receiver)).toBe(ends), 600)
  await allSettled(harness, ends)
  await last.stop()
  const report = { ...reportOf(receiver, uids), kills, faults, ...(await writes.stop()) }
  await stop()
  return { ...report, seconds: Math.round((performance.now() - startedAt) / 1000) }
}

function arrivedIn(receiver: WebhookReceiver): number {
  return new Set(receiver.accepted.map(({ id }) => id)).size
}

function reportOf(receiver: WebhookReceiver, uids: readonly string[]) {
  const { accepted, received } = receiver
  const identities = new Map<string, Set<string>>()
  for (const { id, body } of received) {
    const { id: inBody, subject, type, time, data } = JSON.parse(body)
    const identity = JSON.stringify([inBody, subject, type, time, data.id])
    identities.set(id, (identities.get(id) ?? new Set()).add(identity))
  }
  const arrived = new Set(accepted.map(({ body }) => JSON.parse(body).data.id as string))
  return {
    ends: uids.length,
    requests: received.length,
    accepted: accepted.length,
    lost: uids.filter((uid) => !arrived.has(uid)).length,
    duplicates: accepted.length - new Set(accepted.map(({ id }) => id)).size,
    // One id for each end, and one end for each id.
    ambiguous: [...identities.values()].filter((all) => all.size > 1).length + Math.abs(identities.size - uids.length),
  }
}

/** Times of the writes of a webhook's status, by the clock of the API server. They have whole seconds. */
class StatusWrites {
  readonly #ended = new AbortController()
  readonly #running: Promise<void>
  /** Milliseconds, by the version that was written. */
  readonly #times = new Map<string, number>()

  constructor({ client, namespace }: ControllerHarness) {
    const transform = (webhook: StoredWebhook): StoredWebhook => {
      const { managedFields = [], resourceVersion } = webhook.metadata as ServerMeta & { resourceVersion: string }
      const time = managedFields.find(({ subresource }) => subresource === "status")?.time
      if (time !== undefined) this.#times.set(resourceVersion, Date.parse(time))
      return webhook
    }
    const reflector = new Reflector({ client, namespace, logger: silentLogger, ...WEBHOOK_CACHE, transform })
    this.#running = reflector.run(this.#ended.signal)
  }

  async stop(): Promise<Pick<KillReport, "statusWrites" | "shortestWriteSeconds" | "writesPer10Seconds">> {
    this.#ended.abort()
    await this.#running
    const times = [...this.#times.values()]
    const gaps = times.slice(1).map((time, i) => (time - (times[i] ?? 0)) / 1000)
    const seconds = ((times.at(-1) ?? 0) - (times[0] ?? 0)) / 1000
    return {
      statusWrites: times.length,
      shortestWriteSeconds: roundTo(10, Math.min(...gaps, Number.POSITIVE_INFINITY)),
      writesPer10Seconds: roundTo(100, seconds === 0 ? 0 : (gaps.length * 10) / seconds),
    }
  }
}

function roundTo(parts: number, value: number): number {
  return Math.round(value * parts) / parts
}

/** Durations of the reconciles of jobs, milliseconds. */
export interface Reconciles {
  reconciles: number
  p50Ms: number
  p99Ms: number
}

export interface Comparison {
  withoutHooks: Reconciles
  withHooks: Reconciles
}

/**
 * Ends the same number of jobs without webhooks, and with three whose receiver fails at random. The runs alternate, so
 * that other programs of the machine slow both.
 */
export async function compareReconciles(
  newHarness: () => Promise<ControllerHarness>,
  { ends, rounds }: { ends: number; rounds: number },
): Promise<Comparison> {
  const { receiver, authority, stop } = await startUnreliable()
  const seconds = { without: [] as number[], with: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? (["without", "with"] as const) : (["with", "without"] as const)
    for (const hooks of order) {
      const harness = await newHarness()
      const { namespace } = harness
      if (hooks === "with") await createWebhooks(harness, receiver.url, ["one", "two", "three"])
      const webhooks = hooks === "with" ? { webhooks: SETTINGS } : {}
      const operator = await OperatorProcess.start({ namespace, ...webhooks }, authority)
      await endJobs(harness, ends)
      await allSettled(harness, ends)
      seconds[hooks].push(...(await operator.stop()))
    }
  }
  await stop()
  return { withoutHooks: reconcilesOf(seconds.without), withHooks: reconcilesOf(seconds.with) }
}

function reconcilesOf(seconds: readonly number[]): Reconciles {
  const sorted = seconds.toSorted((a, b) => a - b)
  const at = (part: number): number => roundTo(100, (sorted[Math.floor(sorted.length * part)] ?? 0) * 1000)
  return { reconciles: sorted.length, p50Ms: at(0.5), p99Ms: at(0.99) }
}
