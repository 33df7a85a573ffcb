import { randomBytes, randomUUID } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { CONNECTION_CACHE, CREDENTIALS_SECRET_CACHE } from "../../src/accounts/caches.ts"
import { createLaunchAccounts } from "../../src/accounts/launch-accounts.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { ConnectionSpec, ConnectionType, StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ensureSealingKeys, readSealingKeys, SEALING_KEYS_CACHE } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { EventRecorder, events } from "../../src/core/kube/events.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { OutcomeUnknownError, TransientError } from "../../src/core/outbound/errors.ts"
import { CONNECTIONS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { sealCredentials } from "../../src/core/sealing/credentials.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { launchIndexes } from "../../src/market/caches.ts"
import { createConnectionController } from "../../src/operator/connection/controller.ts"
import { CONNECTION_DEFAULTS } from "../../src/operator/connection/settings.ts"
import { kubeConfig, kubectl, testNamespace } from "../control-plane.ts"
import { jobOf, launchOf } from "../harness/builders.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { eventually } from "../harness/eventually.ts"
import { clientOf, makeSystemNamespace } from "../harness/machine-users.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimProvider } from "../harness/sim-provider.ts"

const MARKER = "cAnArY"

const systemNamespace = testNamespace("connection-system")
const namespace = testNamespace("connection")
const project = `p-${randomBytes(4).toString("hex")}`
const admin = new KubeClient(kubeConfig())
const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(admin, systemNamespace)))
const clock = new ShiftedClock()
const provider = new SimProvider(clock)
const lines: string[] = []
let stop: () => Promise<void>
let caches: { connections: Reflector<StoredConnection>; secrets: Reflector<Secret> }

beforeAll(async () => {
  await installBase(admin, AbortSignal.timeout(120_000))
  await makeSystemNamespace(admin, systemNamespace)
  await ensureSealingKeys(admin, systemNamespace)
  await confirmedProject(admin, { name: project, organization: "o", namespace })
  const client = await clientOf("berth-operator")
  // The API server applies new rights after a delay.
  await eventually(() => client.list(LAUNCHES, { namespace: systemNamespace }))
  const logger = createLogger({ level: "trace", name: "test", destination: { write: (line) => void lines.push(line) } })
  const base = { client, logger }
  const reflectors = {
    connections: new Reflector({ ...base, ...CONNECTION_CACHE, namespace }),
    secrets: new Reflector({ ...base, ...CREDENTIALS_SECRET_CACHE, namespace }),
    sealingKeys: new Reflector({ ...base, ...SEALING_KEYS_CACHE, namespace: systemNamespace }),
    projects: new Reflector({ ...base, resource: PROJECTS }),
    launches: new Reflector<StoredLaunch>({
      ...{ ...base, resource: LAUNCHES },
      namespace: systemNamespace,
      indexes: launchIndexes,
    }),
  }
  caches = reflectors
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: "test", logger })
  const controller = createConnectionController({
    ...{ ...reflectors, client, clock, recorder, logger },
    sealer: new Sealer(new KeyringEncryption(() => readSealingKeys(client, systemNamespace))),
    identityIssuer: "https://berth.example",
    openAccount: (type, fields) => (type === "github" ? undefined : provider.provider.account?.(fields)),
  })
  const ending = new AbortController()
  const running = [...Object.values(reflectors).map((reflector) => reflector.run(ending.signal))]
  running.push(controller.run(ending.signal, { abort: ending.signal }))
  stop = async () => {
    ending.abort()
    await Promise.all(running)
    await recorder.flush()
    await client.close()
  }
})
afterAll(async () => {
  await stop()
  await admin.delete(PROJECTS, { name: project })
  await admin.close()
})
beforeEach(async () => {
  provider.onVerify = undefined
  provider.onCapabilities = undefined
  for (const resource of [CONNECTIONS, SECRETS]) {
    const { items } = await admin.list(resource, { namespace })
    for (const { metadata } of items) await admin.delete(resource, { namespace, name: metadata.name })
  }
  await eventually(() => expect(caches.connections.store.size + caches.secrets.store.size).toBe(0))
  // Not before: a connection of the last test may have been verified once more.
  provider.verified.length = 0
})

function aws(secret: string): Record<string, string> {
  return { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: secret }
}

/** Returns a key pair of an account, in the form of the provider's `issue`. */
function keyOf(account: string): Record<string, string> {
  const secret = `${MARKER}${randomBytes(12).toString("hex")}`
  provider.issue(account, secret)
  return aws(secret)
}

function create(name: string, spec: ConnectionSpec): Promise<StoredConnection> {
  return admin.create(CONNECTIONS, { metadata: { name, namespace }, spec } as StoredConnection)
}

async function sealed(name: string, fields: Record<string, string>, type: ConnectionType = "aws"): Promise<string> {
  return await sealCredentials(sealer, { type, fields }, { project, name })
}

async function createSealed(name: string, fields: Record<string, string>): Promise<StoredConnection> {
  return create(name, { type: "aws", sealedCredentials: await sealed(name, fields) })
}

function secretOf(name: string, fields: Record<string, string>, type = "berth.dev/connection"): Promise<Secret> {
  const data = Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, btoa(value)]))
  return admin.create(SECRETS, { metadata: { name, namespace }, type, data })
}

function byReference(name: string, secret: string, type: ConnectionType = "aws"): Promise<StoredConnection> {
  return create(name, { type, credentialsSecretRef: { name: secret } })
}

function get(name: string): Promise<StoredConnection> {
  return admin.get(CONNECTIONS, { namespace, name })
}

/** Returns the connection when its Ready condition is about its present state. */
async function ready(name: string, status: "True" | "False", reason: string): Promise<StoredConnection> {
  return await eventually(async () => {
    const connection = await get(name)
    const condition = findCondition(connection.status?.conditions, "Ready")
    expect(condition).toMatchObject({ status, reason, observedGeneration: connection.metadata.generation })
    return connection
  })
}

function message(connection: StoredConnection): string {
  return findCondition(connection.status?.conditions, "Ready")?.message ?? ""
}

function kstatus(connection: StoredConnection): Record<string, string> {
  return Object.fromEntries((connection.status?.conditions ?? []).map(({ type, status }) => [type, status]))
}

function keyfile(change: object): string {
  const file = {
    type: "service_account",
    project_id: "acme-1",
    private_key: `-----BEGIN PRIVATE KEY-----\n${MARKER}\n-----END PRIVATE KEY-----\n`,
    client_email: "berth@acme-1.iam.gserviceaccount.com",
    token_uri: "https://oauth2.googleapis.com/token",
  }
  return JSON.stringify({ ...file, ...change })
}

describe("the controller of connections", () => {
  it("sets a sealed connection Ready after its provider has returned the account", async () => {
    await createSealed("my-aws", keyOf("111122223333"))
    const connection = await ready("my-aws", "True", "Verified")
    expect(connection.status).toMatchObject({ account: "111122223333", observedGeneration: 1 })
    expect(Date.parse(connection.status?.lastVerifiedTime ?? "")).not.toBeNaN()
    expect(kstatus(connection)).toEqual({ Ready: "True", Reconciling: "False" })
    await eventually(async () => {
      const { items } = await admin.list(events, { namespace })
      const reported = items.filter(({ involvedObject }) => involvedObject.uid === connection.metadata.uid)
      expect(reported.map(({ reason }) => reason)).toEqual(["Verified"])
    })
  })

  it("follows a connection's Secret that is created late, changed, invalid, and deleted", async () => {
    await byReference("by-secret", "credentials")
    const missing = await ready("by-secret", "False", "SecretNotFound")
    expect(kstatus(missing)).toEqual({ Ready: "False", Reconciling: "True" })
    await secretOf("credentials", keyOf("account-1"))
    expect((await ready("by-secret", "True", "Verified")).status?.account).toBe("account-1")
    const write = (fields: Record<string, string>) => {
      const data = Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, btoa(value)]))
      return admin.patch(SECRETS, { namespace, name: "credentials" }, { merge: { data } })
    }
    await write(keyOf("account-2"))
    await eventually(async () => expect((await get("by-secret")).status?.account).toBe("account-2"))
    await write({ secret_access_key: `${MARKER} with a line end\n` })
    const mistaken = await ready("by-secret", "False", "InvalidCredentials")
    expect(message(mistaken)).toContain("secret_access_key")
    expect(mistaken.status?.account).toBeUndefined()
    await write(keyOf("account-3"))
    await ready("by-secret", "True", "Verified")
    await admin.delete(SECRETS, { namespace, name: "credentials" })
    await ready("by-secret", "False", "SecretNotFound")
  })

  it("sets the reason Unverified for a connection whose type this version can't verify", async () => {
    await secretOf("token", { username: "acme", token: `ghp_${MARKER}` })
    await byReference("ghcr", "token", "github")
    const connection = await ready("ghcr", "False", "Unverified")
    expect(message(connection)).toContain("connections of type github")
    expect(kstatus(connection)).toMatchObject({ Stalled: "True" })
  })

  it("reports rejected credentials without any part of them, and sets Ready as soon as the provider accepts them", async () => {
    const secret = `${MARKER}${randomBytes(12).toString("hex")}`
    await createSealed("early", aws(secret))
    const refused = await ready("early", "False", "CredentialsRefused")
    expect(message(refused)).toContain("InvalidClientTokenId: the key [redacted] is not known")
    expect(kstatus(refused)).toMatchObject({ Stalled: "True" })
    // Providers learn of a new key after a delay.
    provider.issue("account", secret)
    clock.advance(CONNECTION_DEFAULTS.refusedRetrySeconds)
    expect(kstatus(await ready("early", "True", "Verified"))).toMatchObject({ Ready: "True", Stalled: "False" })
  })

  it("verifies a connection again on a schedule, and keeps it Ready while its provider is temporarily unavailable", async () => {
    const key = keyOf("account")
    await createSealed("steady", key)
    const before = await ready("steady", "True", "Verified")
    clock.advance(1.25 * CONNECTION_DEFAULTS.intervalSeconds)
    await eventually(() => expect(provider.verified).toHaveLength(2))
    const later = await eventually(async () => {
      const connection = await get("steady")
      expect(connection.status?.lastVerifiedTime).not.toBe(before.status?.lastVerifiedTime)
      return connection
    })
    provider.onVerify = () => Promise.reject(new TransientError("Throttled", "slow down"))
    clock.advance(1.25 * CONNECTION_DEFAULTS.intervalSeconds)
    await eventually(() => expect(provider.verified).toHaveLength(3))
    clock.advance(CONNECTION_DEFAULTS.unreachableRetryCapSeconds)
    await eventually(() => expect(provider.verified.length).toBeGreaterThan(3))
    expect(await get("steady")).toEqual(later)
    clock.advance(CONNECTION_DEFAULTS.unreachableGraceSeconds)
    const lost = await ready("steady", "False", "ProviderUnreachable")
    expect(message(lost)).toContain("Throttled: slow down")
    expect(kstatus(lost)).toMatchObject({ Reconciling: "True" })
    provider.onVerify = undefined
    clock.advance(CONNECTION_DEFAULTS.unreachableRetryCapSeconds)
    await ready("steady", "True", "Verified")
  })

  it("shows what a connection's account can do, without any part of the credentials", async () => {
    provider.onCapabilities = async (_, fields) => ({
      vms: { is: "denied", reason: "NetworkMissing", message: `no network for ${fields["secret_access_key"]}` },
      buckets: { is: "granted", message: "fine" },
    })
    await createSealed("bucket-only", keyOf("account"))
    const { status } = await ready("bucket-only", "True", "Verified")
    expect(status?.capabilities).toEqual({
      vms: {
        status: "False",
        reason: "NetworkMissing",
        message: "no VM is started with this connection: no network for [redacted]",
      },
      buckets: { status: "True", reason: "PermissionsGranted", message: "fine" },
    })
    expect(findCondition(status?.conditions, "LaunchPermitted")).toMatchObject({ status: "False" })
    const described = await kubectl(["describe", "bconn/bucket-only", "-n", namespace])
    expect(checklistIn(described)).toEqual([
      ["Buckets", "True", "PermissionsGranted", "fine"],
      ["Vms", "False", "NetworkMissing", "no VM is started with this connection: no network for [redacted]"],
    ])
    provider.onCapabilities = async () => ({ vms: { is: "granted", message: "able" } })
    clock.advance(CONNECTION_DEFAULTS.unableIntervalSeconds)
    await eventually(async () => expect((await get("bucket-only")).status?.capabilities?.vms?.status).toBe("True"))
    const merge = { spec: { sealedCredentials: await sealed("bucket-only", keyOf("other")) } }
    await admin.patch(CONNECTIONS, { namespace, name: "bucket-only" }, { merge })
    await eventually(async () => expect((await get("bucket-only")).status?.account).toBe("other"))
    // Nothing remains of the former credentials, whose buckets could be listed.
    expect((await get("bucket-only")).status?.capabilities).toEqual({
      vms: { status: "True", reason: "PermissionsGranted", message: "able" },
    })
  })

  it("checks again at once when a connection names another network", async () => {
    provider.onCapabilities = async ({ settings }) => ({
      vms:
        settings?.subnets === undefined
          ? { is: "denied", reason: "NetworkMissing", message: "no default VPC" }
          : { is: "granted", message: "able" },
    })
    await createSealed("networked", keyOf("account"))
    const permitted = (status: string) =>
      eventually(async () => {
        const found = await get("networked")
        expect(findCondition(found.status?.conditions, "LaunchPermitted")).toMatchObject({ status })
      })
    await permitted("False")
    const merge = { spec: { subnets: { "eu-west-1": ["subnet-0a1b2c3d"] } } }
    await admin.patch(CONNECTIONS, { namespace, name: "networked" }, { merge })
    await permitted("True")
  })

  it("keeps a connection Ready if only the check of its capabilities hangs", async () => {
    let asked = 0
    provider.onCapabilities = () => {
      asked++
      return new Promise(() => undefined)
    }
    await createSealed("slow", keyOf("account"))
    await eventually(() => expect(asked).toBe(1))
    clock.advance(CONNECTION_DEFAULTS.verifySeconds)
    const { status } = await ready("slow", "True", "Verified")
    expect(status?.capabilities).toBeUndefined()
  })

  it("stops waiting for a connection's provider at the time limit", async () => {
    provider.onVerify = () => new Promise(() => undefined)
    await createSealed("hanging", keyOf("account"))
    await eventually(() => expect(provider.verified).toHaveLength(1))
    await ready("hanging", "False", "Verifying")
    clock.advance(CONNECTION_DEFAULTS.verifySeconds)
    const connection = await ready("hanging", "False", "ProviderUnreachable")
    expect(message(connection)).toContain("no answer within 30 seconds")
  })

  it("uses a connection only while its present credentials are the verified ones", async () => {
    const launchAccounts = createLaunchAccounts({
      ...{ ownAccounts: [], types: ["aws"] },
      connections: caches.connections.store,
      sources: caches,
    })
    await createSealed("paying", keyOf("account-1"))
    await ready("paying", "True", "Verified")
    await eventually(() =>
      expect(launchAccounts.of(namespace)).toMatchObject([
        { cloud: "aws", connection: "paying", account: "account-1", credentials: expect.stringMatching(/^sealed\//) },
      ]),
    )
    expect(launchAccounts.of("elsewhere")).toEqual([])
    provider.onVerify = () => Promise.reject(new OutcomeUnknownError("Timeout", "reset"))
    const merge = { spec: { sealedCredentials: await sealed("paying", keyOf("account-2")) } }
    await admin.patch(CONNECTIONS, { namespace, name: "paying" }, { merge })
    await eventually(() => expect(launchAccounts.of(namespace)).toEqual([]))
    const connection = await ready("paying", "False", "ProviderUnreachable")
    expect(connection.status?.account).toBeUndefined()
  })

  it("verifies a connection at once after a cloud rejected a launch for its credentials, and keeps its regions", async () => {
    const key = keyOf("account")
    await createSealed("used", key)
    await ready("used", "True", "Verified")
    provider.revoke(key["secret_access_key"] ?? "")
    clock.advance(5)
    const job = jobOf({ metadata: { namespace, uid: randomUUID() } })
    const { metadata, spec } = launchOf(job, 1, { spec: { connection: "used", account: "account" } })
    const ref = { namespace: systemNamespace, name: metadata.name }
    const offer = { ...spec.offer, cloud: "aws", region: "eu-north-1" }
    await admin.create(LAUNCHES, { metadata: ref, spec: { ...spec, offer } } as StoredLaunch)
    try {
      await eventually(async () => expect((await get("used")).status?.regions).toEqual(["eu-north-1"]))
      expect(provider.verified).toHaveLength(1)
      const refusal = { class: "Credentials", code: "AuthFailure", message: "no", time: timestamp(clock.now()) }
      await admin.patchStatus(LAUNCHES, ref, { merge: { status: { phase: "refused", refusal } } })
      const connection = await ready("used", "False", "CredentialsRefused")
      expect(connection.status?.regions).toEqual(["eu-north-1"])
      expect(provider.verified).toHaveLength(2)
    } finally {
      await admin.delete(LAUNCHES, ref)
    }
  })
})

describe("the controller of connections with dangerous credentials", () => {
  const attempt = async (name: string, type: ConnectionType, fields: Record<string, string>): Promise<string> => {
    await create(name, { type, sealedCredentials: await sealed(name, fields, type) })
    const bySeal = await ready(name, "False", "InvalidCredentials")
    await secretOf(name, fields)
    await byReference(`${name}-ref`, name, type)
    expect(message(await ready(`${name}-ref`, "False", "InvalidCredentials"))).toBe(message(bySeal))
    return message(bySeal)
  }
  const gcp = (change: object) => ({ gcp_project_id: "acme-1", keyfile_json: keyfile(change) })

  it.each<[string, ConnectionType, Record<string, string>, string]>([
    [
      "a file name that makes Berth read its own files",
      "gcp",
      gcp({ type: "external_account", credential_source: { file: "/var/run/secrets/kubernetes.io/token" } }),
      "type external_account, which is not supported",
    ],
    [
      "a file that runs a program",
      "gcp",
      gcp({ type: "external_account", credential_source: { executable: { command: "/bin/sh" } } }),
      "type external_account, which is not supported",
    ],
    ["a key file of a person", "gcp", gcp({ type: "authorized_user" }), "type authorized_user"],
    ["a foreign token_uri", "gcp", gcp({ token_uri: "https://evil.example/token" }), "token_uri that is not Google's"],
    [
      "a token_uri of the metadata service",
      "gcp",
      gcp({ token_uri: "http://169.254.169.254/computeMetadata/v1/" }),
      "token_uri that is not Google's",
    ],
    [
      "a token_uri inside the cluster",
      "gcp",
      gcp({ token_uri: "http://10.0.0.1/token" }),
      "token_uri that is not Google's",
    ],
    ["another universe", "gcp", gcp({ universe_domain: "evil.example" }), "keyfile_json must have the universe_domain"],
    [
      "a tenant with a path and a host",
      "azure",
      {
        tenant_id: "x@169.254.169.254/..",
        client_id: randomUUID(),
        client_secret: MARKER,
        subscription_id: randomUUID(),
      },
      "tenant_id must be a UUID or a domain name",
    ],
    [
      "an account id with a host",
      "cloudflare",
      { account_id: "127.0.0.1/", access_key_id: "id", secret_access_key: MARKER },
      "account_id must be 32 characters of 0-9 and a-f",
    ],
    [
      "an endpoint of the author's own",
      "aws",
      { ...aws(MARKER), endpoint: "http://10.0.0.1" },
      "endpoint is an unknown field",
    ],
    ["half a key", "aws", { access_key_id: "AKIA" }, "secret_access_key is required"],
  ])(
    "rejects credentials with %s by the name of the error, without a request to the provider",
    async (_what, type, fields, expected) => {
      const reported = await attempt("attack", type, fields)
      expect(reported).toContain(expected)
      expect(reported).not.toContain(MARKER)
      expect(provider.verified).toEqual([])
    },
  )

  it("rejects a Secret of another type without reading it, and can't name one of another namespace", async () => {
    await secretOf("token", { ...aws(MARKER), namespace: "kube-system" }, "Opaque")
    await byReference("thief", "token")
    const connection = await ready("thief", "False", "WrongSecretType")
    expect(message(connection)).toContain("is not of type berth.dev/connection, so it is not read")
    expect(caches.secrets.store.list()).toEqual([])
    const spec = { type: "aws", credentialsSecretRef: { name: "a", namespace: "berth-system" } }
    await expect(create("other", spec as ConnectionSpec)).rejects.toMatchObject({ code: 400 })
    expect(provider.verified).toEqual([])
  })

  it("rejects a ciphertext that was copied, changed or sealed elsewhere, without a request to the provider", async () => {
    const fields = keyOf("account")
    const mine = await sealed("mine", fields)
    const ofProject = await sealCredentials(sealer, { type: "aws", fields }, { project: "another", name: "foreign" })
    const whole = await sealed("changed", fields)
    const last = whole.at(-2) === "A" ? "B" : "A"
    const texts: [string, string, string][] = [
      ["copied", mine, "Tampered"],
      ["foreign", ofProject, "Tampered"],
      ["changed", `${whole.slice(0, -2)}${last}${whole.slice(-1)}`, "Tampered"],
      ["retyped", await sealed("retyped", fields, "gcp"), "Tampered"],
      ["rotated", (await sealed("rotated", fields)).replace(/^berth1[.][^.]+/, "berth1.0ld-key"), "UnknownKey"],
      ["nothing", "hello", "InvalidCredentials"],
      ["future", mine.replace("berth1", "berth9"), "InvalidCredentials"],
    ]
    for (const [name, sealedCredentials] of texts) await create(name, { type: "aws", sealedCredentials })
    for (const [name, , reason] of texts) {
      const connection = await ready(name, "False", reason)
      expect(message(connection)).toContain("sealedCredentials can't be opened")
      expect(kstatus(connection)).toMatchObject({ Stalled: "True" })
    }
    expect(message(await get("rotated"))).toContain('"0ld-key" is not in the keyring')
    expect(provider.verified).toEqual([])
    // The controller still works.
    await createSealed("mine", fields)
    await ready("mine", "True", "Verified")
  })
})

it("no log or event shows credentials of these tests", async () => {
  expect(lines.length).toBeGreaterThan(0)
  expect(lines.join("")).not.toContain(MARKER)
  expect(lines.join("")).not.toContain("TypeError")
  const { items } = await admin.list(events, { namespace })
  expect(items.length).toBeGreaterThan(5)
  expect(JSON.stringify(items)).not.toContain(MARKER)
})

describe("a connection by a role", () => {
  const ROLE = "arn:aws:iam::123456789012:role/berth"

  it("shows what the cloud must trust, also while the cloud refuses it", async () => {
    await createSealed("role", { role_arn: ROLE })
    await eventually(async () => {
      const { status } = await get("role")
      expect(findCondition(status?.conditions, "Ready")?.reason).toBe("CredentialsRefused")
      const { subject = "", externalId } = status?.identity ?? {}
      expect(status?.identity).toEqual({
        issuer: "https://berth.example",
        audience: "sts.amazonaws.com",
        subject: `${project}:role:${externalId}`,
        externalId: expect.stringMatching(/^[0-9a-f]{16}$/),
      })
      expect(subject).not.toBe("")
    })
  })

  it("can't choose its own subject", async () => {
    const fields = { role_arn: ROLE, identity_subject: "other:main:0123456789abcdef" }
    await createSealed("forged", fields)
    await eventually(async () => {
      const ready = findCondition((await get("forged")).status?.conditions, "Ready")
      expect([ready?.reason, ready?.message]).toEqual([
        "InvalidCredentials",
        expect.stringContaining("identity_subject is an unknown field"),
      ])
    })
  })
})

/** Returns the rows of `Status.Capabilities` in the output of `kubectl describe`: name, status, reason and message. */
function checklistIn(described: string): (string | undefined)[][] {
  const [, text = ""] = /^ {2}Capabilities:\n((?: {4}.*\n)*)/m.exec(described) ?? []
  return text.split(/^ {4}(?=\S)/m).flatMap((row) => {
    const fieldIn = (field: string) => new RegExp(`^ {6}${field}: +(.*)$`, "m").exec(row)?.[1]
    const [, name] = /^(\w+):/.exec(row) ?? []
    return name === undefined ? [] : [[name, fieldIn("Status"), fieldIn("Reason"), fieldIn("Message")]]
  })
}
