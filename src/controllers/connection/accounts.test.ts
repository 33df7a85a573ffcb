import { describe, expect, test } from "vitest"
import type { ConnectionSpec, ConnectionStatus, StoredConnection } from "../../apis/connection.ts"
import type { Launch } from "../../apis/launch.ts"
import type { StoredProject } from "../../apis/project.ts"
import type { Secret } from "../../kube/core.ts"
import { IndexedStore } from "../../kube/store.ts"
import { openCredentials, sealCredentials } from "../../sealing/credentials.ts"
import { Sealer } from "../../sealing/envelope.ts"
import { KeyringEncryption } from "../../sealing/keys.ts"
import { credentialsCopier, payersOf } from "./accounts.ts"
import { CONNECTION_CACHE, type CredentialSources } from "./options.ts"

const keyring = { primary: "k1", keys: new Map([["k1", new Uint8Array(32)]]) }
const sealer = new Sealer(new KeyringEncryption(() => Promise.resolve(keyring)))
const context = { project: "acme", name: "main" }
const fields = { access_key_id: "AKIA", secret_access_key: "secret" }
const sealed = await sealCredentials(sealer, { type: "aws", fields }, context)
const credentialId = sealed.split(".")[2] ?? ""

const stored = { uid: "u", resourceVersion: "7", generation: 2, creationTimestamp: "2026-01-01T00:00:00Z" }

function connectionOf(spec: Partial<ConnectionSpec>, status: ConnectionStatus): StoredConnection {
  const metadata = { ...stored, name: "main", namespace: "team" }
  return { apiVersion: "berth.dev/v1alpha1", kind: "Connection", metadata, spec: { type: "aws", ...spec }, status }
}

/** As the controller writes it of these credentials. */
function verified(version: string, changes: { isReady?: boolean; generation?: number } = {}): ConnectionStatus {
  const { isReady = true, generation = 2 } = changes
  const ready = {
    type: "Ready",
    status: isReady ? ("True" as const) : ("False" as const),
    observedGeneration: generation,
  }
  const condition = { ...ready, lastTransitionTime: "2026-01-01T00:00:00Z", reason: "Verified", message: "" }
  return { account: "1234", verifiedCredentials: version, conditions: [condition] }
}

function sourcesOf(connection: StoredConnection, secretVersion = "3") {
  const connections = new IndexedStore<StoredConnection>(CONNECTION_CACHE.indexes)
  connections.put(connection)
  const secrets = new IndexedStore<Secret>()
  const data = Object.fromEntries(Object.entries(fields).map(([field, value]) => [field, btoa(value)]))
  const metadata = { name: "gitops", namespace: "team", uid: "s", resourceVersion: secretVersion }
  secrets.put({ metadata, type: "berth.dev/connection", data })
  const projects = new IndexedStore<StoredProject>()
  const project = {
    metadata: { ...stored, name: "acme" },
    spec: { displayName: "Acme", organization: "o", namespace: "team" },
    status: { namespace: "team" },
  }
  projects.put(project as StoredProject)
  const sources: CredentialSources = { secrets: { store: secrets }, projects: { store: projects }, sealer }
  return { connections, sources }
}

const bySeal = { sealedCredentials: sealed }
const bySecret = { credentialsSecretRef: { name: "gitops" } }
const PAYER = { cloud: "aws", connection: "main", account: "1234" }

describe("who pays", () => {
  test.each<[string, Partial<ConnectionSpec>, ConnectionStatus, object[]]>([
    ["verified", bySeal, verified(`sealed/${credentialId}`), [PAYER]],
    [
      "sealed anew, which is another generation",
      bySeal,
      verified(`sealed/${credentialId}`, { generation: 1 }),
      [PAYER],
    ],
    ["changed since it was verified", bySeal, verified("sealed/another"), []],
    ["not Ready", bySeal, verified(`sealed/${credentialId}`, { isReady: false }), []],
    ["not looked at yet", bySeal, {}, []],
    ["no sealed text", { sealedCredentials: "hello" }, verified("sealed/another"), []],
    ["of a type that makes no VMs", { ...bySeal, type: "github" }, verified(`sealed/${credentialId}`), []],
    ["verified, by its Secret", bySecret, verified("secret/s/3"), [PAYER]],
    ["whose Secret was changed since", bySecret, verified("secret/s/2"), []],
    ["whose Secret was made anew since", bySecret, verified("secret/t/3"), []],
    ["that names another Secret since", bySecret, verified("secret/s/3", { generation: 1 }), []],
    ["whose Secret is gone", { credentialsSecretRef: { name: "gone" } }, verified("secret/s/3"), []],
  ])("a connection that is %s", async (_, spec, status, expected) => {
    const { connections, sources } = sourcesOf(connectionOf(spec, status))
    const payers = payersOf({ ownAccounts: [], connections, types: ["aws", "gcp"], sources })
    expect(payers.of("team")).toEqual(expected)
    expect(payers.of("elsewhere")).toEqual([])
    const launch = {
      spec: { job: { namespace: "team" }, offer: { cloud: "aws" }, connection: "main", account: "1234" },
    }
    const copy = await credentialsCopier(connections, sources)(launch as Launch)
    expect(copy !== undefined).toBe(expected.length > 0)
  })

  test("no connection that is Ready, but not allowed to start VMs, which says why", async () => {
    const status = verified(`sealed/${credentialId}`)
    const lastTransitionTime = "2026-01-01T00:00:00Z"
    const condition = { type: "LaunchPermitted", lastTransitionTime, observedGeneration: 2, reason: "R", message: "x" }
    const judged = (isPermitted: "True" | "False" | "Unknown") => {
      const conditions = [...(status.conditions ?? []), { ...condition, status: isPermitted }]
      const { connections, sources } = sourcesOf(connectionOf(bySeal, { ...status, conditions }))
      return { payers: payersOf({ ownAccounts: [], connections, types: ["aws"], sources }), connections, sources }
    }
    const { payers, connections, sources } = judged("False")
    expect(payers.of("team")).toEqual([])
    expect(payers.refused?.("team")).toEqual([{ cloud: "aws", connection: "main", message: "x" }])
    for (const other of ["True", "Unknown"] as const) {
      expect(judged(other).payers.of("team")).toEqual([PAYER])
      expect(judged(other).payers.refused?.("team")).toEqual([])
    }
    // A VM that it made before is ended by it still.
    const launch = {
      spec: { job: { namespace: "team" }, offer: { cloud: "aws" }, connection: "main", account: "1234" },
    }
    expect(await credentialsCopier(connections, sources)(launch as Launch)).toBeDefined()
  })

  test("accounts that need no connection, everywhere", () => {
    const { connections } = sourcesOf(connectionOf(bySeal, {}))
    const payers = payersOf({ ownAccounts: [{ cloud: "local", region: "here" }], connections, types: [] })
    expect(payers.of("team")).toEqual([{ cloud: "local" }])
  })
})

describe("the copy that a Launch carries", () => {
  const launchOf = (account: string, cloud = "aws") =>
    ({ spec: { job: { namespace: "team" }, offer: { cloud }, connection: "main", account } }) as Launch

  test.each<[string, Partial<ConnectionSpec>, string]>([
    ["what is sealed", bySeal, `sealed/${credentialId}`],
    ["a Secret's content, sealed", bySecret, "secret/s/3"],
  ])("is %s, and opens for its project and connection alone", async (_, spec, version) => {
    const { connections, sources } = sourcesOf(connectionOf(spec, verified(version)))
    const copy = await credentialsCopier(connections, sources)(launchOf("1234"))
    expect(copy?.project).toBe("acme")
    const sealedCredentials = copy?.sealedCredentials ?? ""
    expect(sealedCredentials).not.toContain("secret")
    expect((await openCredentials(sealer, { type: "aws", sealedCredentials }, context)).fields).toEqual(fields)
    const elsewhere = openCredentials(sealer, { type: "aws", sealedCredentials }, { ...context, project: "evil" })
    await expect(elsewhere).rejects.toMatchObject({ fault: "tampered" })
  })

  test("is none when the connection opens another account or cloud by now, or is gone", async () => {
    const { connections, sources } = sourcesOf(connectionOf(bySeal, verified(`sealed/${credentialId}`)))
    const copy = credentialsCopier(connections, sources)
    expect(await copy(launchOf("5678"))).toBeUndefined()
    expect(await copy(launchOf("1234", "gcp"))).toBeUndefined()
    connections.remove("team/main")
    expect(await copy(launchOf("1234"))).toBeUndefined()
  })
})
