import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { join } from "node:path"
import { expect } from "vitest"
import type { StoredWebhook } from "../../src/apis/webhook.ts"
import { WEBHOOKS } from "../../src/controllers/webhook/options.ts"
import { SECRETS, type Secret } from "../../src/kube/core.ts"
import { inParallel } from "../../src/runtime/in-parallel.ts"
import { newSigningSecret } from "../../src/webhooks/signature.ts"
import { eventually } from "../cloud/eventually.ts"
import { confirmedProject } from "../confirmed-project.ts"
import { kubeconfigPath } from "../control-plane.ts"
import type { ControllerHarness } from "./harness.ts"
import { JOBS } from "./harness.ts"
import type { WebhookOperatorOptions } from "./webhook-operator.ts"
import { type Reply, WebhookReceiver } from "./webhook-receiver.ts"

const PROGRAM = join(import.meta.dirname, "webhook-operator.ts")

const RETRY = { firstSeconds: 0.2, factor: 1.5, longestSeconds: 2, jitter: 0.2, giveUpSeconds: 3 * 86_400 }
const WRITE_SECONDS = 10

/** Outcome of a run with kills. */
export interface KillReport {
  ends: number
  kills: number
  requests: number
  accepted: number
  /** Ends of jobs that arrived never. */
  lost: number
  /** Accepted messages whose id had arrived before. */
  duplicates: number
  /** Ids for which messages with different content, apart from the job's progress, arrived. */
  ambiguous: number
  /** Shortest time between two versions of the webhook's status of one operator, seconds. */
  shortestWriteSeconds: number
  statusWrites: number
  seconds: number
}

/** Responses of a receiver that fails at random. */
function unreliable(random: () => number): () => Reply {
  return () => {
    const draw = random()
    if (draw < 0.1) return 500
    if (draw < 0.15) return "reset"
    if (draw < 0.18) return "silent"
    if (draw < 0.25) return { status: 204, afterMs: 300 }
    return 204
  }
}

/** Starts an operator as a process of its own. */
export async function startProgram(options: Omit<WebhookOperatorOptions, "kubeconfig">): Promise<ChildProcess> {
  const argument: WebhookOperatorOptions = { kubeconfig: kubeconfigPath(), ...options }
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(argument)], { stdio: ["ignore", "pipe", "inherit"] })
  await once(child.stdout as NodeJS.ReadableStream, "data")
  return child
}

/** Ends jobs while the receiver fails at random and the operator is killed, and reports what arrived. */
export async function runWithKills(
  harness: ControllerHarness,
  { ends, kills, random = Math.random }: { ends: number; kills: number; random?: () => number },
): Promise<KillReport> {
  const { client, namespace } = harness
  const receiver = await WebhookReceiver.start()
  receiver.reply = unreliable(random)
  await confirmedProject(client, { name: namespace, organization: "o", namespace })
  const data = { secret: btoa(newSigningSecret()) }
  await client.create(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
  const spec = { url: receiver.url, events: ["job.*"], secretRef: { name: "hook" } }
  await client.create(WEBHOOKS, { metadata: { name: "hook", namespace }, spec } as StoredWebhook)
  const writes = new StatusWrites(client, namespace)
  const webhooks = { retry: RETRY, timeoutSeconds: 1, writeSeconds: WRITE_SECONDS }
  const startedAt = performance.now()
  const uids: string[] = []
  const submitting = inParallel(
    Array.from({ length: ends }, (_, i) => async () => {
      const job = { metadata: { name: `job-${i}`, namespace }, spec: { image: "a", cancelled: true } }
      uids.push((await client.create(JOBS, job as never)).metadata.uid)
    }),
    8,
  )
  for (let kill = 0; kill < kills; kill++) {
    const operator = await startProgram({ namespace, webhooks })
    // The next kill comes when a part of the messages has arrived, so that each kill interrupts work.
    const goal = Math.floor((ends * (kill + 1)) / (kills + 2))
    await eventually(() => expect(arrivedIn(receiver)).toBeGreaterThanOrEqual(goal), 300)
    operator.kill("SIGKILL")
    await once(operator, "exit")
  }
  const last = await startProgram({ namespace, webhooks })
  await submitting
  await eventually(() => expect(arrivedIn(receiver)).toBe(ends), 600)
  await eventually(async () => {
    const selected = { namespace, fieldSelector: "status.settled=true" }
    expect((await client.list(JOBS, selected)).items).toHaveLength(ends)
  }, 300)
  last.kill("SIGTERM")
  await once(last, "exit")
  const { count, shortest } = await writes.stop()
  const seconds = Math.round((performance.now() - startedAt) / 1000)
  const report = { ...reportOf(receiver, uids), kills, statusWrites: count, shortestWriteSeconds: shortest, seconds }
  await receiver.stop()
  return report
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

/** Times of the writes of a webhook's status, from a watch. */
class StatusWrites {
  readonly #ended = new AbortController()
  readonly #running: Promise<void>
  readonly #times: number[] = []

  constructor(client: ControllerHarness["client"], namespace: string) {
    this.#running = this.#watch(client, namespace).catch(() => undefined)
  }

  async #watch(client: ControllerHarness["client"], namespace: string): Promise<void> {
    const { Reflector } = await import("../../src/kube/reflector.ts")
    const { WEBHOOK_CACHE } = await import("../../src/controllers/webhook/options.ts")
    const { quiet } = await import("./namespace-harness.ts")
    const reflector = new Reflector({ client, namespace, logger: quiet, ...WEBHOOK_CACHE })
    let last: string | undefined
    reflector.onChange(({ current }) => {
      const text = JSON.stringify(current?.status)
      if (text !== last && current?.status !== undefined) this.#times.push(performance.now())
      last = text
    })
    await reflector.run(this.#ended.signal)
  }

  async stop(): Promise<{ count: number; shortest: number }> {
    this.#ended.abort()
    await this.#running
    const gaps = this.#times.slice(1).map((time, i) => (time - (this.#times[i] ?? 0)) / 1000)
    return { count: this.#times.length, shortest: Math.round(Math.min(...gaps, Number.POSITIVE_INFINITY) * 10) / 10 }
  }
}
