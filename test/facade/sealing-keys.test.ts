import { afterAll, describe, expect, it } from "vitest"
import { ensureSealingKeys, readSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"

describe("the Secret with the sealing keys", () => {
  const namespace = testNamespace("sealing-keys")
  const client = new KubeClient(kubeConfig())
  const ref = { namespace, name: "berth-sealing-keys" }
  afterAll(() => client.close())

  it("has no sealing keys until the operator creates them, and creates them once for many concurrent operators", async () => {
    await expect(readSealingKeys(client, namespace)).rejects.toMatchObject({ name: "SealingKeysMissing" })
    const made = await Promise.all(Array.from({ length: 5 }, () => ensureSealingKeys(client, namespace)))
    const again = await ensureSealingKeys(client, namespace)
    for (const keyring of made) expect(keyring).toEqual(again)
    expect([...again.keys.keys()]).toEqual([again.primary])
    expect(again.keys.get(again.primary)).toHaveLength(32)
    expect(await readSealingKeys(client, namespace)).toEqual(again)
    expect((await client.get(SECRETS, ref)).type).toBe("berth.dev/sealing-keys")
  })

  it("reads several sealing keys, one of which is primary", async () => {
    const before = await ensureSealingKeys(client, namespace)
    const data = { primary: btoa("next"), "key-next": Buffer.alloc(32, 1).toString("base64") }
    await client.patch(SECRETS, ref, { merge: { data } })
    const { primary, keys } = await readSealingKeys(client, namespace)
    expect(primary).toBe("next")
    expect([...keys.keys()].toSorted()).toEqual([before.primary, "next"].toSorted())
  })

  it.each([
    ["names a missing primary key", { primary: btoa("gone") }],
    ["names no primary key", { primary: null }],
    ["has a key of an invalid length", { "key-short": btoa("short") }],
    ["has a key with an invalid id", { "key-a.b": Buffer.alloc(32).toString("base64") }],
  ])("rejects a Secret of sealing keys that %s, and leaves the Secret unchanged", async (_what, data) => {
    await ensureSealingKeys(client, namespace)
    const kept = await client.get(SECRETS, ref)
    await client.patch(SECRETS, ref, { merge: { data } })
    const damaged = await client.get(SECRETS, ref)
    const expected = /sealing-keys is damaged.*Restore it from a backup/
    await expect(ensureSealingKeys(client, namespace)).rejects.toThrow(expected)
    await expect(readSealingKeys(client, namespace)).rejects.toThrow(expected)
    expect(await client.get(SECRETS, ref)).toEqual(damaged)
    await client.delete(SECRETS, ref)
    const { name, labels } = kept.metadata
    await client.create(SECRETS, { ...kept, metadata: { name, namespace, ...(labels && { labels }) } })
  })
})
