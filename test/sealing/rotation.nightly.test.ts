import { execFile } from "node:child_process"
import { randomBytes } from "node:crypto"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import { deleteSealingKeys, readSealingKeys, rotateSealingKey } from "../../src/core/identity/sealing-keys.ts"
import { CONNECTIONS, JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { parseSealingKeyId } from "../../src/core/sealing/envelope.ts"
import { eventually } from "../harness/eventually.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { type Installation, startInstallation } from "../harness/whole-berth.ts"

let berth: Installation
beforeAll(async () => {
  berth = await startInstallation({ retirement: { graceSeconds: 0.5, lookSeconds: 0.25 } })
})
afterAll(() => berth?.stop())

const COUNT = 12
const MAIN = join(import.meta.dirname, "..", "..", "src", "main.ts")

interface ConnectionRecord {
  name: string
  secret_access_key: string | null
}

async function call(path: string, options: { method?: string; body?: object; replica?: number } = {}) {
  const { method = "GET", body, replica = 0 } = options
  const headers = { "X-Service-Api-Key": berth.keys.admin, "Content-Type": "application/json" }
  const init = { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) }
  const response = await fetch(`${berth.urls[replica]}${path}`, init)
  return { status: response.status, body: (await response.json()) as ConnectionRecord }
}

/** Creates a connection whose key its provider knows. */
async function connect(name: string): Promise<string> {
  const secret = randomBytes(16).toString("hex")
  berth.provider.issue(`account-of-${name}`, secret)
  const body = { name, type: "aws", access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: secret }
  expect((await call("/connections", { method: "POST", body })).status).toBe(201)
  return secret
}

async function connections(): Promise<StoredConnection[]> {
  return (await berth.client.list(CONNECTIONS, { namespace: berth.namespace })).items
}

async function keysInUse(): Promise<string[]> {
  return [...new Set((await connections()).map(({ spec }) => parseSealingKeyId(spec.sealedCredentials ?? "")))]
}

async function keysThere(): Promise<string[]> {
  return [...(await readSealingKeys(berth.client, SYSTEM_NAMESPACE)).keys.keys()]
}

/** Reads and changes connections through both façades until it is stopped; checks each response. */
class Load {
  readonly #secrets: Map<string, string>
  readonly faults: string[] = []
  reads = 0
  writes = 0
  #stopped = false
  readonly #loops: Promise<void>[]

  constructor(secrets: Map<string, string>) {
    this.#secrets = secrets
    const names = [...secrets.keys()]
    this.#loops = [this.#read(names, 0), this.#read(names, 1), this.#write(names.slice(0, 3))]
  }

  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.all(this.#loops)
  }

  async #read(names: readonly string[], replica: number): Promise<void> {
    while (!this.#stopped) {
      for (const name of names) {
        const before = this.#secrets.get(name)
        const { status, body } = await call(`/connections/${name}`, { replica })
        this.reads++
        const right = [before, this.#secrets.get(name), this.#changing.get(name)]
        if (status !== 200 || !right.includes(body.secret_access_key ?? ""))
          this.faults.push(`read of ${name}: ${status} ${JSON.stringify(body)}`)
      }
    }
  }

  /** Secrets of pending writes, which a read may already return. */
  readonly #changing = new Map<string, string>()

  async #write(names: readonly string[]): Promise<void> {
    while (!this.#stopped) {
      for (const name of names) {
        const secret = randomBytes(16).toString("hex")
        berth.provider.issue(`account-of-${name}`, secret)
        this.#changing.set(name, secret)
        const body = { secret_access_key: secret }
        const { status, body: answer } = await call(`/connections/${name}`, { method: "PATCH", body })
        this.writes++
        if (status !== 200) this.faults.push(`write of ${name}: ${status} ${JSON.stringify(answer)}`)
        this.#secrets.set(name, secret)
      }
    }
  }
}

describe("a rotation of the sealing key", () => {
  const secrets = new Map<string, string>()

  it("fails no read and no write under load, seals everything again, and deletes the former keys", async () => {
    for (let number = 0; number < COUNT; number++) secrets.set(`main-${number}`, await connect(`main-${number}`))
    await eventually(async () => {
      for (const { status } of await connections())
        expect(findCondition(status?.conditions, "Ready")?.status).toBe("True")
    })
    const [first] = await keysThere()
    const load = new Load(secrets)
    const ids = [first]
    for (let round = 0; round < 3; round++) {
      const { before, now } = await rotateSealingKey(berth.client, SYSTEM_NAMESPACE)
      expect(before).toBe(ids.at(-1))
      ids.push(now)
      await eventually(async () => expect(await keysInUse()).toEqual([now]))
      await eventually(async () => expect(await keysThere()).toEqual([now]))
    }
    await eventually(() => expect([load.reads > COUNT * 2, load.writes > 2]).toEqual([true, true]))
    await load.stop()
    expect(load.faults).toEqual([])
    expect(new Set(ids).size).toBe(4)
    for (const [name, secret] of secrets)
      for (const replica of [0, 1])
        expect(await call(`/connections/${name}`, { replica })).toMatchObject({ body: { secret_access_key: secret } })
    // Sealing again doesn't change the credentials: unchanged ones were verified only once.
    const asked = berth.provider.verified.filter((secret) => secret === secrets.get(`main-${COUNT - 1}`))
    expect(asked).toHaveLength(1)
    expect(berth.logged()).not.toContain(secrets.get("main-0"))
  })

  it("keeps a sealing key while a Launch may need it to terminate its VM", async () => {
    const secret = await connect("paying")
    const job = { metadata: { name: "job", namespace: berth.namespace }, spec: { image: "busybox" } }
    for (const { metadata } of await connections())
      if (metadata.name !== "paying") await berth.client.delete(CONNECTIONS, metadata)
    await berth.client.create(JOBS, job as never)
    const launch = await eventually(async () => {
      const { items } = await berth.client.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE })
      const found = items.find(({ status }) => status?.vm?.id !== undefined)
      expect(found).toBeDefined()
      return found
    })
    const { before, now } = await rotateSealingKey(berth.client, SYSTEM_NAMESPACE)
    expect(parseSealingKeyId(launch?.spec.sealedCredentials ?? "")).toBe(before)
    await eventually(async () => expect(await keysInUse()).toEqual([now]))
    // The check of the other keys proves that the unneeded key was checked too.
    const unneeded = await rotateSealingKey(berth.client, SYSTEM_NAMESPACE)
    await eventually(async () => expect(await keysThere()).toEqual([before, unneeded.now].toSorted()))
    await berth.client.delete(CONNECTIONS, { namespace: berth.namespace, name: "paying" })
    berth.provider.issue("account-of-paying", secret)
    await berth.client.patch(JOBS, job.metadata, { merge: { spec: { cancelled: true } } })
    await eventually(async () => expect(await keysThere()).toEqual([unneeded.now]))
    const { status } = await berth.client.get(LAUNCHES, {
      namespace: SYSTEM_NAMESPACE,
      name: launch?.metadata.name ?? "",
    })
    expect(status?.phase).toBe("terminated")
  })

  it("rotates the sealing key although a user writes a former key's id into a Connection", async () => {
    const { before, now } = await rotateSealingKey(berth.client, SYSTEM_NAMESPACE)
    const sealedCredentials = `berth1.${before}.id.${"A".repeat(40)}.${"A".repeat(80)}`
    const connection = {
      metadata: { name: "squatter", namespace: berth.namespace },
      spec: { type: "aws", sealedCredentials },
    }
    await berth.client.create(CONNECTIONS, connection as StoredConnection)
    await eventually(async () => expect(await keysThere()).toEqual([now]))
  })

  it("names connections sealed under a deleted key, and accepts credentials that are sent again", async () => {
    const secret = await connect("lost")
    const key = (await keysThere())[0] ?? ""
    // By the façade alone: the operator would seal the credentials again.
    await rotateSealingKey(berth.client, SYSTEM_NAMESPACE)
    await eventually(async () => expect(await keysThere()).not.toContain(key))
    const [stored] = (await connections()).filter(({ metadata }) => metadata.name === "lost")
    const sealedCredentials = stored?.spec.sealedCredentials?.replace(/^berth1[.][^.]+/, `berth1.${key}`)
    await berth.client.patch(CONNECTIONS, stored?.metadata ?? { name: "" }, { merge: { spec: { sealedCredentials } } })
    await eventually(async () => {
      const { status } = await berth.client.get(CONNECTIONS, { namespace: berth.namespace, name: "lost" })
      const ready = findCondition(status?.conditions, "Ready")
      expect(ready).toMatchObject({ status: "False", reason: "UnknownKey" })
      expect(ready?.message).toContain(`"${key}" is not in the keyring`)
    })
    await eventually(async () => expect((await call("/connections/lost")).status).toBe(409))
    const body = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: secret }
    expect((await call("/connections/lost", { method: "PATCH", body })).status).toBe(200)
    expect(await call("/connections/lost")).toMatchObject({ status: 200, body: { secret_access_key: secret } })
  })
})

describe("berth rotate-sealing-key", () => {
  it("replaces the sealing key of the cluster that the kubeconfig names", async () => {
    const { primary } = await readSealingKeys(berth.client, SYSTEM_NAMESPACE)
    const args = [MAIN, "rotate-sealing-key", "--kubeconfig", berth.controlPlane.kubeconfigPath]
    const { stdout } = await promisify(execFile)(process.execPath, args)
    const { primary: now, keys } = await readSealingKeys(berth.client, SYSTEM_NAMESPACE)
    expect(now).not.toBe(primary)
    expect(stdout).toBe(`New credentials are encrypted with the key ${now}. It replaces ${primary}.\n`)
    expect(stdout).not.toContain(Buffer.from(keys.get(now) ?? []).toString("base64"))
  })

  it("reports what is missing when no sealing key exists", async () => {
    const args = [MAIN, "rotate-sealing-key", "--system-namespace", "default"]
    const options = { env: { ...process.env, KUBECONFIG: berth.controlPlane.kubeconfigPath } }
    const running = promisify(execFile)(process.execPath, args, options)
    await expect(running).rejects.toThrow('there is no Secret berth-sealing-keys in namespace "default"')
  })
})

describe("the retirement of sealing keys", () => {
  it("never deletes the primary sealing key, and keeps the key of a concurrent rotation", async () => {
    const { primary } = await readSealingKeys(berth.client, SYSTEM_NAMESPACE)
    await deleteSealingKeys(berth.client, SYSTEM_NAMESPACE, [primary, "unknown"])
    expect((await readSealingKeys(berth.client, SYSTEM_NAMESPACE)).primary).toBe(primary)
    const both = await Promise.allSettled([1, 2].map(() => rotateSealingKey(berth.client, SYSTEM_NAMESPACE)))
    const made = both.flatMap((result) => (result.status === "fulfilled" ? [result.value.now] : []))
    expect(made.length).toBeGreaterThan(0)
    for (const result of both) if (result.status === "rejected") expect(result.reason).toMatchObject({ code: 409 })
    expect(made).toContain((await readSealingKeys(berth.client, SYSTEM_NAMESPACE)).primary)
  })
})
