import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { API_KEY, API_KEY_FINALIZER, isBound, type Role, type StoredApiKey } from "../../src/apis/apikey.ts"
import { timestamp } from "../../src/apis/clock.ts"
import { findCondition } from "../../src/apis/conditions.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../src/apis/meta.ts"
import { bindingOf, machineUserOf } from "../../src/controllers/apikey/decide.ts"
import { API_KEYS } from "../../src/controllers/apikey/options.ts"
import { makeApiKey } from "../../src/identity/apikeys.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS, type ServiceAccount } from "../../src/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../src/identity/role-bindings.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { isNotFound } from "../../src/kube/errors.ts"
import { eventually } from "../cloud/eventually.ts"
import { kubeConfig, kubectl, testNamespace } from "../control-plane.ts"
import { type TendedKeys, tendKeys } from "../facade/machine-users.ts"
import { ShiftedClock } from "./shifted-clock.ts"

const client = new KubeClient(kubeConfig())
const namespace = testNamespace("apikeys")
const elsewhere = testNamespace("apikeys-else")
let running: TendedKeys[] = []

async function start(overrides: Parameters<typeof tendKeys>[1] = {}): Promise<TendedKeys> {
  const tended = await tendKeys(namespace, overrides)
  running.push(tended)
  return tended
}

async function stopAll(): Promise<void> {
  await Promise.all(running.map((tended) => tended.stop()))
  running = []
}

beforeAll(() => installBase(client, AbortSignal.timeout(120_000)))
beforeEach(stopAll)
afterAll(async () => {
  await stopAll()
  await client.close()
})

async function make(name: string, role: Role = "developer", expiresAt?: string): Promise<StoredApiKey> {
  const { keyId, tokenHash } = makeApiKey()
  const spec = { role, keyId, tokenHash, ...(expiresAt && { expiresAt }) }
  const key = { apiVersion: API_VERSION, kind: API_KEY.kind, metadata: { name, namespace }, spec }
  return client.create(API_KEYS, key as StoredApiKey)
}

const get = (name: string): Promise<StoredApiKey> => client.get(API_KEYS, { namespace, name })

async function userOf(key: StoredApiKey): Promise<ServiceAccount | undefined> {
  try {
    return await client.get(SERVICE_ACCOUNTS, machineUserOf(key).metadata)
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

/** What the key's machine user is allowed in the namespace, as the API server has it. */
async function rolesOf(key: StoredApiKey): Promise<string[]> {
  const user = machineUserOf(key).metadata.name
  const { items } = await client.list(ROLE_BINDINGS, { namespace })
  return items
    .filter(({ subjects = [] }) => subjects.some(({ name }) => name === user))
    .map(({ roleRef }) => `${roleRef.kind}/${roleRef.name}`)
}

const becomesBound = (name: string): Promise<StoredApiKey> =>
  eventually(async () => {
    const key = await get(name)
    expect(isBound(key), JSON.stringify(key.status)).toBe(true)
    return key
  })

const becomesReady = (name: string, reason: string): Promise<StoredApiKey> =>
  eventually(async () => {
    const key = await get(name)
    expect(findCondition(key.status?.conditions, "Ready")?.reason).toBe(reason)
    return key
  })

describe("an ApiKey", () => {
  it("gets a machine user without tokens, bound to its role and nothing else", async () => {
    await start()
    await make("plain")
    const key = await becomesBound("plain")
    expect(key.metadata.finalizers).toEqual([API_KEY_FINALIZER])
    expect(key.status).toMatchObject({ machineUser: `apikey-${key.metadata.uid}`, observedGeneration: 1 })
    expect(await userOf(key)).toMatchObject({ automountServiceAccountToken: false })
    expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"])
    const wide = JSON.parse(await kubectl(["get", "clusterrolebindings", "-o", "json"])) as { items: RoleBinding[] }
    const subjects = wide.items.flatMap((binding) => binding.subjects ?? [])
    expect(subjects.filter(({ name }) => name.includes(key.metadata.uid))).toEqual([])
    await kubectl(["wait", "--for=condition=Ready", "bkey/plain", "-n", namespace, "--timeout=120s"])
    await eventually(async () =>
      expect(await kubectl(["get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}"])).toContain("Bound"),
    )
  })

  it("is bound anew when its role changes, and kubectl can wait for it", async () => {
    await start()
    await make("changing", "viewer")
    const key = await becomesBound("changing")
    await client.patch(API_KEYS, key.metadata, { merge: { spec: { role: "admin" } } })
    await becomesBound("changing")
    expect(await rolesOf(key)).toEqual(["ClusterRole/berth-admin"])
  })

  it("goes with its machine user, and only after it", async () => {
    const { stop } = await start()
    await make("going")
    const key = await becomesBound("going")
    await stop()
    running = []
    await client.delete(API_KEYS, key.metadata)
    expect((await get("going")).metadata.deletionTimestamp).toBeDefined()
    expect(await userOf(key)).toBeDefined()
    await start()
    await eventually(() => expect(get("going")).rejects.toMatchObject({ code: 404 }))
    expect(await userOf(key)).toBeUndefined()
    expect(await rolesOf(key)).toEqual([])
  })

  it("loses its rights when it expires and has them again when the expiry is put off", async () => {
    const clock = new ShiftedClock()
    await start({ clock })
    await make("expiring", "admin", timestamp(new Date(Date.now() + 3_600_000)))
    const key = await becomesBound("expiring")
    clock.advance(3600)
    await becomesReady("expiring", "Expired")
    await eventually(async () => expect(await rolesOf(key)).toEqual([]))
    expect(await userOf(key)).toBeDefined()
    await kubectl(["wait", "--for=condition=Expired", "bkey/expiring", "-n", namespace, "--timeout=120s"])
    await client.patch(API_KEYS, key.metadata, { merge: { spec: { expiresAt: null } } })
    await becomesBound("expiring")
    expect(await rolesOf(key)).toEqual(["ClusterRole/berth-admin"])
  })

  it("is tended by any number of controllers at once", async () => {
    await Promise.all([start(), start(), start()])
    const names = ["a", "b", "c", "d"].map((letter) => `shared-${letter}`)
    await Promise.all(names.map((name) => make(name, "viewer")))
    for (const name of names) {
      const key = await becomesBound(name)
      await client.patch(API_KEYS, key.metadata, { merge: { spec: { role: "developer" } } })
      await becomesBound(name)
      // Another one, whose caches are later, may do once more what has been undone, and mends that as soon as it sees it.
      await eventually(async () => expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"]))
      await client.delete(API_KEYS, key.metadata)
      await eventually(async () => {
        expect(await userOf(key)).toBeUndefined()
        expect(await rolesOf(key)).toEqual([])
      })
    }
  })
})

describe("drift is repaired", () => {
  it("when the machine user or the binding is deleted, or the binding's subjects change", async () => {
    await start()
    await make("drifting")
    const key = await becomesBound("drifting")
    const binding = bindingOf(key).metadata
    await client.delete(SERVICE_ACCOUNTS, machineUserOf(key).metadata)
    await eventually(async () => expect(await userOf(key)).toBeDefined())
    await client.delete(ROLE_BINDINGS, binding)
    await eventually(async () => expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"]))
    const subjects = [
      ...(bindingOf(key).subjects ?? []),
      { kind: "User", apiGroup: "rbac.authorization.k8s.io", name: "eve" },
    ]
    await client.patch(ROLE_BINDINGS, binding, { merge: { subjects } })
    await eventually(async () => {
      expect((await client.get(ROLE_BINDINGS, binding)).subjects).toEqual(bindingOf(key).subjects)
    })
    await becomesBound("drifting")
  })

  it("when it happened while no controller ran", async () => {
    const { stop } = await start()
    await make("unattended")
    const key = await becomesBound("unattended")
    await stop()
    running = []
    await client.delete(SERVICE_ACCOUNTS, machineUserOf(key).metadata)
    await client.delete(ROLE_BINDINGS, bindingOf(key).metadata)
    await start()
    await eventually(async () => {
      expect(await userOf(key)).toBeDefined()
      expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"])
    })
  })

  it("when a key went without its finalizer's leave, and another took its name", async () => {
    await start()
    await make("forced")
    const first = await becomesBound("forced")
    await stopAll()
    await client.patch(API_KEYS, first.metadata, { merge: { metadata: { finalizers: null } } })
    await client.delete(API_KEYS, first.metadata)
    await make("forced", "viewer")
    await start()
    const second = await becomesBound("forced")
    await eventually(async () => expect(await userOf(first)).toBeUndefined())
    expect(await rolesOf(first)).toEqual([])
    expect(await rolesOf(second)).toEqual(["ClusterRole/berth-viewer"])
  })
})

describe("what others made", () => {
  it("is never adopted: not a ServiceAccount of the name", async () => {
    const key = await make("squatted")
    const user = {
      ...machineUserOf(key),
      metadata: { name: machineUserOf(key).metadata.name, namespace: IDENTITIES_NAMESPACE },
    }
    const foreign = await client.create(SERVICE_ACCOUNTS, user)
    await start()
    await becomesReady("squatted", "NameTaken")
    expect(await rolesOf(key)).toEqual([])
    expect((await userOf(key))?.metadata.resourceVersion).toBe(foreign.metadata.resourceVersion)
    const said = await kubectl(["describe", "bkey/squatted", "-n", namespace])
    expect(said).toContain(`ServiceAccount ${user.metadata.name} exists and was not made for this key`)
    await stopAll()

    await client.delete(SERVICE_ACCOUNTS, foreign.metadata)
    await start()
    await becomesBound("squatted")
  })

  it("is never adopted: nor a RoleBinding", async () => {
    const key = await make("planted")
    const { name } = bindingOf(key).metadata
    const planted = await client.create(ROLE_BINDINGS, { ...bindingOf(key), metadata: { name, namespace } })
    await start()
    const taken = await becomesReady("planted", "NameTaken")
    expect(findCondition(taken.status?.conditions, "Ready")?.message).toContain(`RoleBinding ${name} exists`)
    expect(await client.get(ROLE_BINDINGS, planted.metadata)).toEqual(planted)
    await stopAll()
    await client.delete(ROLE_BINDINGS, planted.metadata)
    await start()
    await becomesBound("planted")
  })

  it("in one namespace has no say about a key of another", async () => {
    await start()
    await make("quiet")
    const key = await becomesBound("quiet")
    const { metadata: _, ...binding } = bindingOf(key)
    const planted = await client.create(ROLE_BINDINGS, {
      ...binding,
      metadata: {
        name: "planted",
        namespace: elsewhere,
        labels: { [LABELS.apiKeyUid]: "another" },
        annotations: { [ANNOTATIONS.apiKey]: `${namespace}/quiet` },
      },
    })
    await client.patch(API_KEYS, key.metadata, { merge: { spec: { role: "viewer" } } })
    await becomesBound("quiet")
    expect(await client.get(ROLE_BINDINGS, planted.metadata)).toEqual(planted)
  })
})
