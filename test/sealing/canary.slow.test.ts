import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Provider } from "../../src/clouds/provider.ts"
import type { Role } from "../../src/core/apis/apikey.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { rotateSealingKey } from "../../src/core/identity/sealing-keys.ts"
import type { KubeEvent } from "../../src/core/kube/core.ts"
import { CONFIG_MAPS, SECRETS } from "../../src/core/kube/core.ts"
import { events } from "../../src/core/kube/events.ts"
import { CredentialsError, TransientError } from "../../src/core/outbound/errors.ts"
import { CONNECTIONS, JOBS, LAUNCHES, WEBHOOKS } from "../../src/core/resources.ts"
import { parseSealingKeyId } from "../../src/core/sealing/envelope.ts"
import { eventually } from "../harness/eventually.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { type Installation, startInstallation } from "../harness/whole-berth.ts"
import { etcdContent } from "./etcd-content.ts"

/**
 * Credentials with a marker pass through every operation of Berth. Then the test searches for the marker everywhere.
 * Only an admin's request for the credentials may return it.
 */

/** Marker in every secret that comes by REST. */
const MARKER = `cAnArY${randomBytes(8).toString("hex")}`
/** Marker in a Secret of GitOps, which Kubernetes itself stores in clear. */
const GITOPS_MARKER = `gItOpS${randomBytes(8).toString("hex")}`

/** Texts that the test searched for the marker, by name. */
const haystacks = new Map<string, string | Buffer>()
/** Responses of the API to each role and to unauthenticated callers. */
const answers: string[] = []

let berth: Installation
beforeAll(async () => {
  berth = await startInstallation({
    retirement: { graceSeconds: 0.5, lookSeconds: 0.25 },
    privateReceivers: { hosts: [], networks: ["127.0.0.0/8"] },
    providers: { gcp: chattyProvider, azure: chattyProvider, github: chattyProvider },
  })
})
afterAll(() => berth?.stop())

/** A provider whose every error contains all its credentials, in clear and in the encodings of SDKs. */
const chattyProvider: Provider = {
  account: (fields) => ({
    verify: () => Promise.reject(chatty(fields)),
    storages: async function* () {
      yield await Promise.reject<never>(chatty(fields))
    },
  }),
}

function chatty(fields: CredentialFields): Error {
  const all = JSON.stringify(fields)
  const spellings = [all, JSON.stringify(all), encodeURIComponent(all), ...Object.values(fields).flatMap(encodings)]
  const cause = Object.assign(new Error(`request failed: ${all}`), { config: { headers: { authorization: all } } })
  return new CredentialsError("AuthFailure", `refused: ${spellings.join(" ")}`, { cause })
}

function encodings(value: string): string[] {
  const bytes = Buffer.from(value)
  return [bytes.toString("base64"), bytes.toString("base64url"), bytes.toString("hex")]
}

/** Returns the marker in clear, as it looks inside base64 at any offset, and in hex. */
function spellingsOf(marker: string): string[] {
  const shifted = [0, 1, 2].map((shift) => {
    const base64 = Buffer.concat([Buffer.alloc(shift), Buffer.from(marker)]).toString("base64")
    // Without the ends, whose characters depend on the bytes around the marker.
    return base64.slice(shift === 0 ? 0 : 4, Math.floor((shift + marker.length) / 3) * 4)
  })
  return [marker, ...shifted, Buffer.from(marker).toString("hex")]
}

/** Returns the names of the texts that contain a marker. */
function found(marker: string, where: ReadonlyMap<string, string | Buffer> = haystacks): string[] {
  const spellings = spellingsOf(marker)
  return [...where].filter(([, hay]) => spellings.some((spelling) => hay.includes(spelling))).map(([name]) => name)
}

interface Call {
  method?: string
  role?: Role
  body?: object | string
  type?: string
}

async function call(path: string, { method, role = "admin", body, type = "application/json" }: Call = {}) {
  const headers = { "X-Service-Api-Key": berth.keys[role], "Content-Type": type }
  const text = typeof body === "object" ? JSON.stringify(body) : body
  const verb = method ?? (body === undefined ? "GET" : "POST")
  const init: RequestInit = { method: verb, headers, ...(text !== undefined && { body: text }) }
  const response = await fetch(`${berth.urls[0]}${path}`, init)
  const answer = `${path} ${response.status} ${JSON.stringify([...response.headers])} ${await response.text()}`
  return { status: response.status, answer }
}

/** Calls the API. The response must not contain the marker, for any caller. */
async function quietly(path: string, options: Call = {}): Promise<number> {
  const { status, answer } = await call(path, options)
  answers.push(answer)
  return status
}

const secret = (): string => `${MARKER}${randomBytes(8).toString("hex")}`
const AWS = { type: "aws", access_key_id: "AKIAIOSFODNN7EXAMPLE" }

function keyfile(): string {
  return JSON.stringify({
    type: "service_account",
    project_id: "acme-1",
    private_key_id: secret(),
    private_key: `-----BEGIN PRIVATE KEY-----\n${secret()}\n${secret()}\n-----END PRIVATE KEY-----\n`,
    client_email: "berth@acme-1.iam.gserviceaccount.com",
  })
}

async function standing(name: string, reason: string): Promise<void> {
  await eventually(async () => {
    const { status } = await berth.client.get(CONNECTIONS, { namespace: berth.namespace, name })
    expect(findCondition(status?.conditions, "Ready")?.reason).toBe(reason)
  })
}

describe("a tenant whose credentials have a marker", () => {
  const first = secret()
  const UUID = "123e4567-e89b-12d3-a456-426614174000"

  it("creates credentials over REST, for types whose providers accept them, reject them with verbose errors, or are unknown", async () => {
    berth.provider.issue("account", first)
    expect(await quietly("/connections", { body: { ...AWS, name: "paying", secret_access_key: first } })).toBe(201)
    const others = [
      { type: "gcp", name: "loud-gcp", gcp_project_id: "acme-1", keyfile_json: keyfile() },
      { ...{ type: "azure", tenant_id: UUID, client_id: UUID, subscription_id: UUID }, name: "loud-azure" },
      { type: "github", name: "loud-github", username: "acme", token: secret() },
      { type: "dockerhub", name: "unknown", username: "acme", token: secret() },
    ]
    Object.assign(others[1] ?? {}, { client_secret: secret() })
    for (const body of others) expect(await quietly("/connections", { body })).toBe(201)
    await standing("paying", "Verified")
    for (const name of ["loud-gcp", "loud-azure", "loud-github"]) await standing(name, "CredentialsRefused")
    await standing("unknown", "Unverified")
  })

  it("reads credentials of a Secret that a connection names", async () => {
    const data = { access_key_id: btoa("AKIA"), secret_access_key: btoa(`${GITOPS_MARKER}1`) }
    const { client, namespace } = berth
    await client.create(SECRETS, { metadata: { name: "gitops", namespace }, type: "berth.dev/connection", data })
    const spec = { type: "aws", credentialsSecretRef: { name: "gitops" } }
    await client.create(CONNECTIONS, { metadata: { name: "by-secret", namespace }, spec } as StoredConnection)
    await standing("by-secret", "CredentialsRefused")
    expect(await quietly("/connections/by-secret")).toBe(200)
  })

  it("uses the credentials for a job's VM, for discovery and for a rejected launch", async () => {
    const { client, namespace } = berth
    const submit = (name: string) =>
      client.create(JOBS, { metadata: { name, namespace }, spec: { image: "busybox" } } as StoredJob)
    const launchOf = async (job: string) =>
      (await client.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE })).items.find(({ spec }) => spec.job.name === job)
    await submit("runs")
    await eventually(async () => expect((await launchOf("runs"))?.status?.vm?.id).toBeDefined())
    berth.provider.revoke(first)
    await submit("refused")
    await eventually(async () => expect((await launchOf("refused"))?.status?.refusal?.class).toBe("Credentials"))
    await standing("paying", "CredentialsRefused")
    for (const sort of ["storages", "repositories", "virtual-machine-pools"])
      for (const role of ["admin", "developer", "viewer"] as const)
        expect(await quietly(`/resources/${sort}`, { role })).toBe(200)
  })

  it("changes the credentials, and sends them with every common mistake", async () => {
    const next = secret()
    berth.provider.issue("account", next)
    const patch = (body: object | string, type?: string) =>
      quietly("/connections/paying", { method: "PATCH", body, ...(type !== undefined && { type }) })
    expect(await patch({ secret_access_key: next })).toBe(200)
    await standing("paying", "Verified")
    const mistakes: [object | string, string?][] = [
      [{ access_key_id: `${secret()} with a space` }],
      [{ secret_access_key: `${secret()}\n` }],
      [{ secret_access_key: [secret()] }],
      [{ secret_access_key: { value: secret() } }],
      [{ secret_access_key: secret().repeat(100) }],
      [{ keyfile_json: secret() }],
      [{ type: "gcp", keyfile_json: keyfile() }],
      [`{"secret_access_key": "${secret()}`],
      [`secret_access_key: ${secret()}: ${secret()}`, "application/yaml"],
      [`secret_access_key: *${secret()}`, "application/yaml"],
      [`secret_access_key: [${secret()}`, "application/yaml"],
      [secret(), "application/yaml"],
      [secret(), "text/plain"],
    ]
    for (const [body, type] of mistakes) {
      const status = await patch(body, type)
      expect([400, 413, 415], JSON.stringify(body)).toContain(status)
    }
    const creations = [
      { ...AWS, name: "bad", secret_access_key: `${secret()} ` },
      { type: "gcp", name: "bad", gcp_project_id: "acme-1", keyfile_json: `{"private_key": "${secret()}` },
      { type: "gcp", name: "bad", gcp_project_id: "acme-1", keyfile_json: keyfile().replace("PRIVATE KEY", secret()) },
      { type: "github", name: "bad", username: `acme ${secret()}`, token: `${secret()} ` },
    ]
    for (const body of creations) expect(await quietly("/connections", { body })).toBe(400)
    for (const role of ["developer", "viewer"] as const) {
      expect(await quietly("/connections", { role, body: { ...AWS, name: "no", secret_access_key: next } })).toBe(403)
      expect(await quietly("/connections/paying", { role, method: "PATCH", body: { secret_access_key: next } })).toBe(
        403,
      )
    }
  })

  it("keeps the credentials through an unavailable provider, a rotation of the sealing key, and tampering", async () => {
    berth.provider.onVerify = (fields) => Promise.reject(new TransientError("Down", JSON.stringify(fields)))
    const body = { ...AWS, name: "away", secret_access_key: secret() }
    expect(await quietly("/connections", { body })).toBe(201)
    await standing("away", "ProviderUnreachable")
    const { now } = await rotateSealingKey(berth.client, SYSTEM_NAMESPACE)
    await eventually(async () => {
      const { items } = await berth.client.list(CONNECTIONS, { namespace: berth.namespace })
      const sealed = items.flatMap(({ spec }) => spec.sealedCredentials ?? [])
      expect(sealed.length).toBeGreaterThan(4)
      expect(sealed.filter((text) => parseSealingKeyId(text) !== now)).toEqual([])
    })
    const { spec } = await berth.client.get(CONNECTIONS, { namespace: berth.namespace, name: "away" })
    const copy = { metadata: { name: "copied", namespace: berth.namespace }, spec }
    await berth.client.create(CONNECTIONS, copy as StoredConnection)
    await standing("copied", "Tampered")
    expect(await quietly("/connections/copied")).toBe(409)
  })

  it("creates webhooks, whose secrets no receiver's failure and no mistake shows", async () => {
    const key = Buffer.from(`${MARKER}${randomBytes(8).toString("hex")}`).toString("base64")
    const url = `https://127.0.0.1:2/${secret()}`
    // The one response that has a signing secret is not among the answers.
    const { status } = await call("/webhooks", {
      body: { name: "signed", url: "https://127.0.0.1:2", events: ["job.*"], signing_secret: `whsec_${key}` },
    })
    expect(status).toBe(201)
    expect(await quietly("/webhooks", { body: { name: "slack", url, events: ["job.*"], format: "slack" } })).toBe(201)
    // Messages are signed by the former secret too, so it is stored further.
    expect((await call("/webhooks/signed/rotate", { method: "POST" })).status).toBe(200)
    const { client, namespace } = berth
    const hook = {
      secret: btoa(`whsec_${btoa(`${GITOPS_MARKER}-24-bytes`)}`),
      url: btoa(`https://127.0.0.1:2/${GITOPS_MARKER}`),
    }
    await client.create(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data: hook })
    const bySecret = { events: ["job.*"], secretRef: { name: "hook" } }
    await client.create(WEBHOOKS, { metadata: { name: "by-secret", namespace }, spec: bySecret } as StoredWebhook)
    await eventually(async () => expect(await quietly("/webhooks/by-secret")).toBe(200))
    const mistakes = [
      { name: "bad", url: `ftp://${secret()}`, events: ["job.*"] },
      { name: "bad", url: `https://me:${secret()}@example.com`, events: ["job.*"] },
      { name: "bad", url: "https://example.com", events: ["job.*"], signing_secret: secret() },
      { name: "bad", url: "https://example.com", events: ["job.*"], signing_secret: [secret()] },
    ]
    for (const body of mistakes) expect(await quietly("/webhooks", { body })).toBe(400)
    const ended = { metadata: { name: "ended", namespace }, spec: { image: "a", cancelled: true } }
    await client.create(JOBS, ended as StoredJob)
    for (const name of ["signed", "slack", "by-secret"]) {
      expect(await quietly(`/webhooks/${name}/test`, { method: "POST" })).toBe(200)
      await eventually(async () => {
        const { status: found } = await client.get(WEBHOOKS, { namespace, name })
        expect(found?.pending?.[0]?.error).toMatch(/refused the connection/)
      })
      for (const role of ["admin", "developer", "viewer"] as const)
        for (const path of [`/webhooks/${name}`, `/webhooks/${name}/deliveries`, "/webhooks"])
          expect(await quietly(path, { role })).toBe(200)
    }
  })

  it("reads the connections with every role", async () => {
    for (const role of ["admin", "developer", "viewer"] as const) {
      for (const path of ["/connections", "/connections?view=summary", "/jobs", "/cronjobs", "/keys", "/openapi.json"])
        expect(await quietly(path, { role })).toBe(200)
      expect(await quietly("/jobs/refused", { role })).toBe(200)
      expect(await quietly("/connections/nothing", { role })).toBe(404)
    }
    for (const role of ["developer", "viewer"] as const)
      for (const name of ["paying", "loud-gcp", "by-secret", "unknown"])
        expect(await quietly(`/connections/${name}`, { role })).toBe(200)
  })
})

describe("a search for the marker", () => {
  const collect = async (): Promise<void> => {
    haystacks.set("logs", berth.logged())
    haystacks.set("answers", answers.join("\n"))
    haystacks.set("events", JSON.stringify((await berth.client.list(events)).items))
    const metrics = await Promise.all(berth.metricsUrls.map(async (url) => (await fetch(`${url}/metrics`)).text()))
    haystacks.set("metrics", metrics.join("\n"))
    for (const [key, value] of await etcdContent(berth.controlPlane)) haystacks.set(`etcd ${key}`, value)
  }

  it("finds the marker in the response to an admin who asks for it", async () => {
    expect(found(MARKER, new Map([["answer", (await call("/connections/paying")).answer]]))).toEqual(["answer"])
    expect(found(MARKER, new Map([["answer", (await call("/connections/loud-gcp")).answer]]))).toEqual(["answer"])
  })

  it("finds the marker nowhere else: in no log, event, metric or other response, and in no data of etcd", async () => {
    // The redacted texts must still be there. Events are written in the background, so the last may be late.
    await eventually(async () => {
      const reported = (await berth.client.list<KubeEvent>(events)).items.map(({ message }) => message)
      expect(reported.filter((message) => message.includes("[redacted]")).length).toBeGreaterThan(3)
    })
    await collect()
    const sizes = [...haystacks].map(([name, hay]) => [name, hay.length] as const)
    expect(sizes.filter(([, size]) => size === 0)).toEqual([])
    expect(berth.metricsUrls).toHaveLength(3)
    expect([...haystacks.keys()].filter((name) => name.includes("/berth.dev/connections/")).length).toBeGreaterThan(6)
    expect([...haystacks.keys()].filter((name) => name.includes("/berth.dev/launches/")).length).toBeGreaterThan(1)
    expect([...haystacks.keys()].filter((name) => name.includes("/berth.dev/webhooks/")).length).toBe(3)
    expect(berth.logged()).toContain("[redacted]")
    expect(found(MARKER)).toEqual([])
  })

  it("finds the marker of Secrets only in those Secrets", () => {
    const secrets = ["gitops", "hook"].map((name) => `etcd /registry/secrets/${berth.namespace}/${name}`)
    expect(found(GITOPS_MARKER)).toEqual(secrets)
  })

  it.each<[string, () => Promise<unknown>, string]>([
    ["a log", async () => berth.log({ field: `x${MARKER}` }), "logs"],
    ["a response", async () => answers.push(`{"secret_access_key":"${MARKER}"}`), "answers"],
    [
      "an event",
      async () => {
        const [event] = (await berth.client.list<KubeEvent>(events, { namespace: berth.namespace })).items
        if (event === undefined) throw new Error("there is no event to copy")
        // A copy, because the operator may write its own event again.
        const metadata = { name: "planted", namespace: berth.namespace }
        const message = encodings(`it is ${MARKER}.`)[0] ?? ""
        await berth.client.create(events, { ...event, metadata, message })
      },
      "events",
    ],
    [
      "etcd",
      async () => {
        const data = { planted: Buffer.from(`ab${MARKER}`).toString("base64url") }
        const metadata = { name: "planted", namespace: berth.namespace }
        await berth.client.create(CONFIG_MAPS, { metadata, data } as never)
      },
      "etcd /registry/configmaps/",
    ],
  ])("finds the marker if it leaks into %s", async (_where, plant, expected) => {
    await collect()
    const before = found(MARKER)
    await plant()
    await collect()
    const leaks = found(MARKER).filter((name) => !before.includes(name))
    expect(leaks.some((name) => name.startsWith(expected))).toBe(true)
  })
})
