import { describe, expect, test } from "vitest"
import type { ConnectionSpec, ConnectionStatus, StoredConnection } from "../core/apis/connection.ts"
import type { Launch } from "../core/apis/launch.ts"
import type { StoredProject } from "../core/apis/project.ts"
import type { Secret } from "../core/kube/core.ts"
import { IndexedStore } from "../core/kube/store.ts"
import { openCredentials, sealCredentials } from "../core/sealing/credentials.ts"
import { Sealer } from "../core/sealing/envelope.ts"
import { KeyringEncryption } from "../core/sealing/keys.ts"
import type { ImageState } from "../market/placement/inputs.ts"
import { CONNECTION_CACHE } from "./caches.ts"
import type { CredentialSources } from "./credentials.ts"
import { createLaunchAccounts, credentialsCopier } from "./launch-accounts.ts"

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

/** Returns the status that the controller writes after it has verified these credentials. */
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

describe("launch accounts", () => {
  test.each<[string, Partial<ConnectionSpec>, ConnectionStatus, object[]]>([
    ["verified", bySeal, verified(`sealed/${credentialId}`), [PAYER]],
    ["sealed again, with another generation", bySeal, verified(`sealed/${credentialId}`, { generation: 1 }), [PAYER]],
    ["changed since it was verified", bySeal, verified("sealed/another"), []],
    ["not Ready", bySeal, verified(`sealed/${credentialId}`, { isReady: false }), []],
    ["not reconciled yet", bySeal, {}, []],
    ["no sealed text", { sealedCredentials: "hello" }, verified("sealed/another"), []],
    ["of a type that can't launch VMs", { ...bySeal, type: "github" }, verified(`sealed/${credentialId}`), []],
    ["verified, by its Secret", bySecret, verified("secret/s/3"), [PAYER]],
    ["its Secret was changed since", bySecret, verified("secret/s/2"), []],
    ["its Secret was created again since", bySecret, verified("secret/t/3"), []],
    ["it has named another Secret since", bySecret, verified("secret/s/3", { generation: 1 }), []],
    ["its Secret is deleted", { credentialsSecretRef: { name: "deleted" } }, verified("secret/s/3"), []],
  ])(
    "include a connection only while its verified credentials are its present ones: %s",
    async (_, spec, status, expected) => {
      const { connections, sources } = sourcesOf(connectionOf(spec, status))
      const launchAccounts = createLaunchAccounts({ ownAccounts: [], connections, types: ["aws", "gcp"], sources })
      const credentials = status.verifiedCredentials
      expect(launchAccounts.of("team")).toEqual(expected.map((each) => ({ ...each, credentials })))
      expect(launchAccounts.of("elsewhere")).toEqual([])
      const launch = {
        spec: { job: { namespace: "team" }, offer: { cloud: "aws" }, connection: "main", account: "1234" },
      }
      const copy = await credentialsCopier(connections, sources)(launch as Launch)
      expect(copy?.version).toBe(expected.length > 0 ? credentials : undefined)
    },
  )

  test("leave out a Ready connection that may not start VMs, and return the reason", async () => {
    const status = verified(`sealed/${credentialId}`)
    const lastTransitionTime = "2026-01-01T00:00:00Z"
    const condition = { type: "LaunchPermitted", lastTransitionTime, observedGeneration: 2, reason: "R", message: "x" }
    const judged = (isPermitted: "True" | "False" | "Unknown") => {
      const conditions = [...(status.conditions ?? []), { ...condition, status: isPermitted }]
      const { connections, sources } = sourcesOf(connectionOf(bySeal, { ...status, conditions }))
      return {
        launchAccounts: createLaunchAccounts({ ownAccounts: [], connections, types: ["aws"], sources }),
        connections,
        sources,
      }
    }
    const { launchAccounts, connections, sources } = judged("False")
    expect(launchAccounts.of("team")).toEqual([])
    expect(launchAccounts.refused?.("team")).toEqual([{ cloud: "aws", connection: "main", message: "x" }])
    for (const other of ["True", "Unknown"] as const) {
      expect(judged(other).launchAccounts.of("team")).toMatchObject([PAYER])
      expect(judged(other).launchAccounts.refused?.("team")).toEqual([])
    }
    // The connection still terminates a VM that it launched before.
    const launch = {
      spec: { job: { namespace: "team" }, offer: { cloud: "aws" }, connection: "main", account: "1234" },
    }
    expect(await credentialsCopier(connections, sources)(launch as Launch)).toBeDefined()
  })

  test("include accounts that need no connection in every namespace", () => {
    const { connections } = sourcesOf(connectionOf(bySeal, {}))
    const launchAccounts = createLaunchAccounts({
      ownAccounts: [{ cloud: "local", region: "here" }],
      connections,
      types: [],
    })
    expect(launchAccounts.of("team")).toEqual([{ cloud: "local" }])
  })
})

describe("the copy that a Launch carries", () => {
  const launchOf = (account: string, cloud = "aws") =>
    ({ spec: { job: { namespace: "team" }, offer: { cloud }, connection: "main", account } }) as Launch

  test.each<[string, Partial<ConnectionSpec>, string]>([
    ["the sealed text", bySeal, `sealed/${credentialId}`],
    ["a Secret's content, sealed", bySecret, "secret/s/3"],
  ])("is %s, and only its project and connection can open it", async (_, spec, version) => {
    const { connections, sources } = sourcesOf(connectionOf(spec, verified(version)))
    const copy = await credentialsCopier(connections, sources)(launchOf("1234"))
    expect(copy?.project).toBe("acme")
    const sealedCredentials = copy?.sealedCredentials ?? ""
    expect(sealedCredentials).not.toContain("secret")
    expect((await openCredentials(sealer, { type: "aws", sealedCredentials }, context)).fields).toEqual(fields)
    const elsewhere = openCredentials(sealer, { type: "aws", sealedCredentials }, { ...context, project: "evil" })
    await expect(elsewhere).rejects.toMatchObject({ reason: "tampered" })
  })

  test.each<[string, ImageState | undefined, object | undefined, number | undefined]>([
    ["three times the image's size", { state: "known", architectures: ["amd64"], sizeGib: 20.1 }, undefined, 61],
    ["the job's disk if it is larger", { state: "known", architectures: [], sizeGib: 20 }, { requiredGib: 100 }, 100],
    ["the largest disk of the cloud for a huge image", { state: "known", architectures: [], sizeGib: 1e9 }, {}, 16384],
    ["the job's disk if the size is unknown", { state: "known", architectures: [] }, { requiredGib: 100 }, 100],
    ["no disk if nothing is known", { state: "unknown", why: "no answer" }, undefined, undefined],
    ["no disk if no registry is read", undefined, undefined, undefined],
  ])("requires %s", async (_, image, disk, requiredGib) => {
    const { connections, sources } = sourcesOf(connectionOf(bySeal, verified(`sealed/${credentialId}`)))
    const never: ImageState = { state: "looking" }
    const images = image && {
      find: (namespace: string, name: string) => (`${namespace}/${name}` === "team/i" ? image : never),
    }
    const launch = launchOf("1234")
    const spec = { ...launch.spec, run: { image: "i" }, ...(disk && { disk }) } as Launch["spec"]
    const copy = await credentialsCopier(connections, sources, images)({ ...launch, spec })
    expect(copy?.disk?.requiredGib).toBe(requiredGib)
  })

  test("is missing if the connection now opens another account or cloud, or is deleted", async () => {
    const { connections, sources } = sourcesOf(connectionOf(bySeal, verified(`sealed/${credentialId}`)))
    const copy = credentialsCopier(connections, sources)
    expect(await copy(launchOf("5678"))).toBeUndefined()
    expect(await copy(launchOf("1234", "gcp"))).toBeUndefined()
    connections.remove("team/main")
    expect(await copy(launchOf("1234"))).toBeUndefined()
  })
})
