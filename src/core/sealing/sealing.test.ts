import { randomBytes } from "node:crypto"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { parseSealingKeyId, Sealer, type SealingContext } from "./envelope.ts"
import { type Keyring, KeyringEncryption } from "./keys.ts"

const HERE: SealingContext = { project: "acme", name: "my-aws.ud" }

function ring(primary: string, ...others: string[]): Keyring {
  return { primary, keys: new Map([primary, ...others].map((id) => [id, randomBytes(32)])) }
}

function sealerOf(keyring: Keyring): Sealer {
  return new Sealer(new KeyringEncryption(() => Promise.resolve(keyring)))
}

describe("a sealed secret", () => {
  const sealer = sealerOf(ring("k1"))

  it("opens for its project and name, with any content, and shows none of it", async () => {
    const text = fc.string({ unit: "grapheme", maxLength: 200 })
    await fc.assert(
      fc.asyncProperty(text, text, text, async (secret, project, name) => {
        const sealed = await sealer.seal(secret, { project, name })
        expect(await sealer.open(sealed, { project, name })).toBe(secret)
        expect(sealed).toMatch(/^berth1\.k1\.[0-9a-f-]{36}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/)
      }),
    )
    const sealed = await sealer.seal("marker-of-a-secret", HERE)
    const inBase64 = Buffer.from(sealed.split(".").slice(3).join(""), "base64url").toString("latin1")
    expect(`${sealed} ${inBase64}`).not.toContain("marker")
  })

  it.each<[string, SealingContext]>([
    ["another project", { ...HERE, project: "evil" }],
    ["another name", { ...HERE, name: "my-aws" }],
    ["project and name exchanged", { project: HERE.name, name: HERE.project }],
  ])("does not open for %s", async (_what, elsewhere) => {
    const sealed = await sealer.seal("secret", HERE)
    await expect(sealer.open(sealed, elsewhere)).rejects.toMatchObject({ name: "SealingError", reason: "tampered" })
    await expect(sealer.reseal(sealed, elsewhere)).rejects.toMatchObject({ reason: "tampered" })
  })

  it.each(["/", ".", ",", '","', "\0", " "])(
    "does not open for names that join to the same text by %j",
    async (sign) => {
      const sealed = await sealer.seal("secret", { project: `a${sign}b`, name: "c" })
      await expect(sealer.open(sealed, { project: "a", name: `b${sign}c` })).rejects.toMatchObject({
        reason: "tampered",
      })
    },
  )

  it("does not open if any of its characters is changed or missing", async () => {
    const sealed = await sealer.seal("secret", HERE)
    for (let i = 0; i < sealed.length; i++) {
      const other = sealed[i] === "A" ? "B" : "A"
      const changed = sealed.slice(0, i) + other + sealed.slice(i + 1)
      await expect(sealer.open(changed, HERE), changed).rejects.toMatchObject({ name: "SealingError" })
      await expect(sealer.open(sealed.slice(0, i), HERE)).rejects.toMatchObject({ name: "SealingError" })
      await expect(sealer.open(sealed.slice(0, i) + sealed.slice(i + 1), HERE)).rejects.toMatchObject({
        name: "SealingError",
      })
    }
  })

  it("does not open with a part of another sealed text", async () => {
    const [mine, other] = [await sealer.seal("mine", HERE), await sealer.seal("other", HERE)].map((s) => s.split("."))
    for (const part of [2, 3, 4]) {
      const mixed = mine?.with(part, other?.[part] ?? "").join(".") ?? ""
      await expect(sealer.open(mixed, HERE)).rejects.toMatchObject({ reason: "tampered" })
    }
  })

  it.each([
    ["", "malformed"],
    ["hello", "malformed"],
    ["berth1", "malformed"],
    ["berth1.k1.c.AA", "malformed"],
    ["berth1.k1.c.AA.AA.AA", "malformed"],
    ["berth1.k1.c.AA.!!", "malformed"],
    ["berth1.k1.c.AB.AA", "malformed"],
    ["berth1..c.AA.AA", "malformed"],
    ["berth1.k1.c.AA.AA", "tampered"],
    ["berth2.k1.c.AA.AA", "unknownVersion"],
    ["berth2:anything", "malformed"],
    ["berth1.k2.c.AA.AA", "unknownKey"],
  ])("%j is %s", async (sealed, reason) => {
    await expect(sealer.open(sealed, HERE)).rejects.toMatchObject({ name: "SealingError", reason })
  })

  it("has its own data key, which any key keeper can wrap: a key management service, too", async () => {
    const dataKeys = new Map<string, Uint8Array>()
    const service = new Sealer({
      primary: () => Promise.resolve("service-1"),
      wrap: (dataKey) => {
        const bytes = randomBytes(16)
        dataKeys.set(bytes.toString("hex"), Buffer.from(dataKey))
        return Promise.resolve({ keyId: "service-1", bytes })
      },
      unwrap: ({ bytes }) => Promise.resolve(dataKeys.get(Buffer.from(bytes).toString("hex")) ?? Buffer.alloc(32)),
    })
    const sealed = await Promise.all(["a", "b", "c"].map((secret) => service.seal(secret, HERE)))
    expect(await Promise.all(sealed.map((text) => service.open(text, HERE)))).toEqual(["a", "b", "c"])
    expect(new Set([...dataKeys.values()].map((key) => Buffer.from(key).toString("hex"))).size).toBe(3)
  })

  it("never repeats a nonce or credential id", async () => {
    const sealed = await Promise.all(Array.from({ length: 500 }, () => sealer.seal("same", HERE)))
    for (const part of [2, 3, 4]) {
      const starts = sealed.map((text) => text.split(".")[part]?.slice(0, 16))
      expect(new Set(starts).size).toBe(500)
    }
  })

  it("does not open under another key of the same id, and the error shows no content", async () => {
    const sealed = await sealer.seal("marker", HERE)
    const error: unknown = await sealerOf(ring("k1"))
      .open(sealed, HERE)
      .catch((reason: unknown) => reason)
    expect(error).toMatchObject({ reason: "tampered" })
    expect(String(error)).not.toContain("marker")
  })
})

describe("rotation", () => {
  it("seals under the new primary key, opens under the old one, and reseals without a change of the secret", async () => {
    let keyring = ring("old")
    const sealer = new Sealer(new KeyringEncryption(() => Promise.resolve(keyring)))
    const sealed = await sealer.seal("secret", HERE)
    keyring = { primary: "new", keys: new Map([...keyring.keys, ["new", randomBytes(32)]]) }
    expect(await sealer.open(sealed, HERE)).toBe("secret")
    expect(parseSealingKeyId(await sealer.seal("secret", HERE))).toBe("new")
    const resealed = await sealer.reseal(sealed, HERE)
    expect(parseSealingKeyId(resealed)).toBe("new")
    keyring = { primary: "new", keys: new Map([...keyring.keys].filter(([id]) => id === "new")) }
    const restarted = new Sealer(new KeyringEncryption(() => Promise.resolve(keyring)))
    expect(await restarted.open(resealed, HERE)).toBe("secret")
    await expect(restarted.open(sealed, HERE)).rejects.toMatchObject({
      reason: "unknownKey",
      message: expect.stringContaining('"old"'),
    })
  })

  it("reads the keyring again for a key that it has not seen, and for every seal", async () => {
    let keyring = ring("k1")
    let reads = 0
    const sealer = new Sealer(new KeyringEncryption(() => Promise.resolve(keyring).finally(() => reads++)))
    const first = await sealer.seal("1", HERE)
    keyring = { primary: "k2", keys: new Map([...keyring.keys, ["k2", randomBytes(32)]]) }
    const second = await sealerOf(keyring).seal("2", HERE)
    expect([await sealer.open(first, HERE), await sealer.open(second, HERE)]).toEqual(["1", "2"])
    expect(await sealer.open(second, HERE)).toBe("2")
    expect(reads).toBe(2)
  })

  it("can't be created under a primary key that is missing", async () => {
    const sealer = sealerOf({ primary: "gone", keys: new Map() })
    await expect(sealer.seal("secret", HERE)).rejects.toMatchObject({ reason: "unknownKey" })
  })
})
