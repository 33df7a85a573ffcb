import { Webhook } from "standardwebhooks"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { timestamp } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { monthOf, STATEMENT, type StoredStatement, statementName } from "../../src/core/apis/statement.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import {
  CONNECTIONS,
  CRON_JOBS,
  JOBS,
  ORGANIZATIONS,
  PROJECTS,
  STATEMENTS,
  WEBHOOKS,
} from "../../src/core/resources.ts"
import { messageId } from "../../src/core/webhooks/message-id.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { eventually } from "../harness/eventually.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { type Received, WebhookReceiver } from "../harness/webhook-receiver.ts"
import { type Installation, startInstallation } from "../harness/whole-berth.ts"

/** Events of a whole Berth, as the receivers of three projects get them: two of one organization, and one of another. */

const CAP_OF_INSTALLATION = 100
const SECRET = "sEcReT-of-the-account"
const EVENTS = ["cronjob.skipped", "connection.failed", "budget.threshold"]

let berth: Installation
let receiver: WebhookReceiver
/** Secret with which the receiver verifies the messages of the first project. */
let known = ""
/** Webhooks of the projects, by the name of the project. */
const hooks = new Map<string, StoredWebhook>()

beforeAll(async () => {
  receiver = await WebhookReceiver.start()
  berth = await startInstallation({
    caps: { maxMonthlyUsd: CAP_OF_INSTALLATION },
    privateReceivers: { hosts: [], networks: ["127.0.0.0/8"] },
  })
  await berth.client.apply(ORGANIZATIONS, { metadata: { name: "p" }, spec: { displayName: "P" } })
  known = await createByRest(berth.project)
  await createBySecret("sister", "o")
  await createBySecret("stranger", "p")
  receiver.reply = (message) => (message.path === "/first" && !verifies(message, known) ? 401 : 204)
  for (const { metadata } of hooks.values())
    await eventually(async () => {
      const { status } = await berth.client.get(WEBHOOKS, metadata)
      expect(findCondition(status?.conditions, "Ready")?.reason).toBe("Active")
    })
})
afterAll(async () => {
  await berth?.stop()
  await receiver.stop()
})

async function call<T>(path: string, body?: object, method = "POST"): Promise<T> {
  const headers = { "X-Service-Api-Key": berth.keys.admin, "Content-Type": "application/json" }
  const response = await fetch(`${berth.urls[0]}${path}`, {
    method,
    headers,
    ...(body && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${path} ${response.status} ${await response.text()}`)
  return (await response.json()) as T
}

/** Creates the webhook of the first project. Returns its signing secret. */
async function createByRest(project: string): Promise<string> {
  const body = { name: "hook", url: `${receiver.url}/first`, events: [...EVENTS, "job.*"] }
  const { signing_secret } = await call<{ signing_secret: string }>("/webhooks", body)
  hooks.set(project, await berth.client.get(WEBHOOKS, { namespace: berth.namespace, name: "hook" }))
  return signing_secret
}

/** Creates a project with a webhook, as GitOps does. */
async function createBySecret(name: string, organization: string): Promise<void> {
  const { client } = berth
  await client.create(PROJECTS, { metadata: { name }, spec: { displayName: name, organization } } as StoredProject)
  const namespace = await eventually(async () => {
    const { status } = await client.get(PROJECTS, { name })
    if (status?.namespace === undefined) throw new Error(`${name} has no namespace`)
    return status.namespace
  })
  const data = { secret: btoa(newSigningSecret()) }
  await client.create(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
  const spec = { url: `${receiver.url}/${name}`, events: EVENTS, secretRef: { name: "hook" } }
  hooks.set(name, await client.create(WEBHOOKS, { metadata: { name: "hook", namespace }, spec } as StoredWebhook))
}

function verifies({ body, headers }: Omit<Received, "status">, secret: string): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>)
    return true
  } catch {
    return false
  }
}

interface Event {
  id: string
  source: string
  type: string
  subject: string
  time: string
  data: Record<string, unknown>
}

/** Returns the events of a type that a project's receiver got, in the order of their subjects. */
function eventsOf(project: string, type: string): Event[] {
  const path = project === berth.project ? "/first" : `/${project}`
  const its = receiver.accepted.filter((message) => message.path === path).map(({ body }) => JSON.parse(body) as Event)
  return its
    .filter((event) => event.type === `dev.berth.${type}.v1`)
    .toSorted((a, b) => (a.subject < b.subject ? -1 : 1))
}

function uidOf(project: string): string {
  return hooks.get(project)?.metadata.uid ?? ""
}

describe("connection.failed", () => {
  const change = (secret: string) => call("/connections/paying", { secret_access_key: secret }, "PATCH")
  const ready = async () => {
    const { metadata, status } = await berth.client.get(CONNECTIONS, { namespace: berth.namespace, name: "paying" })
    return { uid: metadata.uid, ...findCondition(status?.conditions, "Ready") }
  }
  const refused = async () => {
    await change(`${SECRET}-wrong`)
    return eventually(async () => {
      const { uid, reason, lastTransitionTime = "" } = await ready()
      expect(reason).toBe("CredentialsRefused")
      return {
        id: messageId(uidOf(berth.project), ["connection.failed", uid, "CredentialsRefused", lastTransitionTime]),
        time: lastTransitionTime,
      }
    })
  }

  it("arrives each time that the provider rejects the credentials, with the id of the transition, and without them", async () => {
    berth.provider.issue("account", SECRET)
    await call("/connections", { type: "aws", name: "paying", access_key_id: "AKIA0", secret_access_key: SECRET })
    await eventually(async () => expect((await ready()).reason).toBe("Verified"))
    const first = await refused()
    await eventually(() => expect(eventsOf(berth.project, "connection.failed")).toHaveLength(1))
    await change(SECRET)
    await eventually(async () => expect((await ready()).reason).toBe("Verified"))
    // Times of transitions have whole seconds.
    await eventually(() => expect(timestamp(new Date()) > first.time).toBe(true))
    const second = await refused()
    await eventually(() => expect(eventsOf(berth.project, "connection.failed")).toHaveLength(2))
    const seen = eventsOf(berth.project, "connection.failed")
    expect(seen.map(({ id, time }) => ({ id, time }))).toEqual([first, second])
    expect(seen[0]).toMatchObject({
      ...{ source: `/projects/${berth.project}`, subject: "connections/paying" },
      data: { name: "paying", reason: "CredentialsRefused" },
    })
    for (const { body } of receiver.received) expect(body).not.toContain(SECRET)
  })
})

describe("cronjob.skipped", () => {
  it("arrives once for ticks that got no job", async () => {
    const { client, namespace } = berth
    const definition = { image: "busybox", resources: { cpu: "96" } }
    const spec = { schedule: "0 * * * *", jobDefinition: definition }
    const { metadata } = await client.create(CRON_JOBS, {
      metadata: { name: "hourly", namespace },
      spec,
    } as unknown as StoredCronJob)
    await eventually(async () => {
      const { status } = await client.get(CRON_JOBS, { namespace, name: "hourly" })
      expect(status?.countsFrom).toBeDefined()
    })
    // As after a downtime of the operator.
    const countsFrom = timestamp(new Date(Date.now() - 3 * 3_600_000))
    await client.patchStatus(CRON_JOBS, { namespace, name: "hourly" }, { merge: { status: { countsFrom } } })
    await eventually(() => expect(eventsOf(berth.project, "cronjob.skipped")).toHaveLength(1))
    const message = `skipped 2 ticks after ${countsFrom}: only the latest missed tick gets a Job`
    const id = messageId(uidOf(berth.project), ["cronjob.skipped", metadata.uid, "TicksSkipped", message])
    expect(eventsOf(berth.project, "cronjob.skipped")).toMatchObject([
      { id, subject: "cronjobs/hourly", data: { name: "hourly", reason: "TicksSkipped", message } },
    ])
  })
})

describe("budget.threshold", () => {
  const month = monthOf(new Date())

  const subjects = (project: string) => eventsOf(project, "budget.threshold").map(({ subject }) => subject)

  /** Sets caps. The cap of the installation is reached meanwhile too. */
  const setCaps = async (project: number, organization: number) => {
    const { client } = berth
    const capped = (maxMonthlyUsd: number) => ({ merge: { spec: { caps: { maxMonthlyUsd } } } })
    await client.patch<StoredProject>(PROJECTS, { name: berth.project }, capped(project))
    await client.patch<StoredOrganization>(ORGANIZATIONS, { name: "o" }, capped(organization))
  }

  it("arrives at the webhooks of each project that the cap holds for", async () => {
    const { client, namespace, project } = berth
    await setCaps(100, 160)
    const metadata = { namespace: SYSTEM_NAMESPACE, name: statementName(namespace, month) }
    const spec = { namespace, month, organization: "o" }
    const made = await client.create(STATEMENTS, { kind: STATEMENT.kind, metadata, spec } as unknown as StoredStatement)
    await client.replaceStatus(STATEMENTS, { ...made, status: { spentUsd: 85 } })
    const [ofProject, ofOrganization] = [`projects/${project}`, "organizations/o"]
    await eventually(() => {
      expect(subjects(project)).toEqual(["installation", ofOrganization, ofProject])
      expect(subjects("sister")).toEqual(["installation", ofOrganization])
      expect(subjects("stranger")).toEqual(["installation"])
    })
    const { uid } = (await client.get(PROJECTS, { name: project })).metadata
    const [, organization, own] = eventsOf(project, "budget.threshold")
    expect(own).toMatchObject({
      id: messageId(uidOf(project), ["budget.threshold", "project", uid, month, "100", "80"]),
      source: `/projects/${project}`,
      data: {
        ...{ level: "project", name: project, month, reached_percent: 80, spent_usd: 85, max_monthly_usd: 100 },
        message: expect.stringMatching(/^the project has spent \$85 of its cap of \$100/),
      },
    })
    expect(organization?.data).toMatchObject({ level: "organization", name: "o", reached_percent: 50 })
    const [installation] = eventsOf("stranger", "budget.threshold")
    expect(installation).toMatchObject({
      source: "/projects/stranger",
      data: { level: "installation", name: null, reached_percent: 80, max_monthly_usd: CAP_OF_INSTALLATION },
    })
  })

  it("arrives again, with another id, after the cap is raised in the same month", async () => {
    const { project } = berth
    await setCaps(105, 160)
    await eventually(() => expect(subjects(project)).toHaveLength(4))
    const own = eventsOf(project, "budget.threshold").filter(({ subject }) => subject === `projects/${project}`)
    expect(own.map(({ data }) => data["max_monthly_usd"])).toEqual([100, 105])
    expect(new Set(own.map(({ id }) => id)).size).toBe(2)
  })
})

describe("a rotation by REST", () => {
  /** Ends a job: it is cancelled before it has a VM. */
  const end = async (name: string): Promise<Received> => {
    const { client, namespace } = berth
    const spec = { image: "busybox", cancelled: true }
    const { metadata } = await client.create(JOBS, { metadata: { name, namespace }, spec } as StoredJob)
    return eventually(() => {
      const found = receiver.received.find(({ body }) => body.includes(metadata.uid))
      if (found === undefined) throw new Error(`the end of ${name} has not arrived`)
      return found
    })
  }

  it("rejects no message, whichever of both secrets the receiver has", async () => {
    const former = known
    await end("before")
    const { signing_secret: current } = await call<{ signing_secret: string }>("/webhooks/hook/rotate")
    const during = await end("during")
    await eventually(async () => expect(verifies(await end(`probe-${Date.now()}`), current)).toBe(true))
    known = current
    const after = await end("after")
    expect([during, after].map((message) => verifies(message, former))).toEqual([true, true])
    expect(verifies(after, current)).toBe(true)
    expect(receiver.received.filter(({ status }) => status !== 204)).toEqual([])
  })
})
