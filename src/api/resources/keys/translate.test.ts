import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { API_KEY, ApiKeySpecSchema, ROLES, type StoredApiKey } from "../../../core/apis/apikey.ts"
import { isUuid } from "../../../core/apis/names.ts"
import { errorsOfObject, findErrors } from "../../../core/apis/validate.ts"
import { checked } from "../../http/checked.ts"
import { KeyItemSchema, KeyRecordSchema, type KeyUpdate, KeyUpdateSchema } from "./schema.ts"
import { checkKey, toApiKey, toKeyItem, toKeyRecord } from "./translate.ts"

const NOW = new Date("2026-01-01T00:00:00Z")

const identity = {
  namespace: "shop",
  keyId: "abcdefgh1234",
  tokenHash: "0".repeat(64),
  createdAt: "2026-01-01T00:00:00.000001Z",
  idempotencyKey: undefined,
}

/** Returns the object as the API server would return it. */
function stored(object: ReturnType<typeof toApiKey>): StoredApiKey {
  const uid = "01234567-89ab-cdef-0123-456789abcdef"
  const given = { uid, resourceVersion: "1", generation: 1, creationTimestamp: "2026-01-01T00:00:00Z" }
  return { ...object, metadata: { ...object.metadata, ...given } }
}

/** Valid names of the contract, which exclude UUIDs. */
const names = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9_-]{2,49}$/).filter((name) => name.length <= 50 && !isUuid(name))

/** Times in the future, with any offset. */
const expiries = fc
  .record({
    time: fc.date({ min: new Date(NOW.getTime() + 1), max: new Date("9998-12-31T00:00:00Z"), noInvalidDate: true }),
    minutes: fc.integer({ min: -14 * 60, max: 14 * 60 }),
  })
  .map(({ time, minutes }) => {
    const local = new Date(time.getTime() + minutes * 60_000).toISOString().slice(0, 23)
    const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60]
    const offset = `${minutes < 0 ? "-" : "+"}${String(hours).padStart(2, "0")}:${String(rest).padStart(2, "0")}`
    return { time, text: local + offset }
  })

describe("a key", () => {
  it("has its values in the record, with its expiry in UTC", () => {
    const submissions = fc.record({ name: names, role: fc.constantFrom(...ROLES), expiry: fc.option(expiries) })
    fc.assert(
      fc.property(submissions, ({ name, role, expiry }) => {
        const checked = checkKey({ name, role, expires_at: expiry?.text ?? null }, NOW)
        if ("errors" in checked) throw new Error(JSON.stringify(checked.errors))
        const object = toApiKey(checked.wanted, identity)
        expect(errorsOfObject(API_KEY, object)).toEqual([])
        expect(object.metadata.name.length).toBeLessThanOrEqual(63)
        const record = toKeyRecord(stored(object))
        expect(findErrors(KeyRecordSchema, record)).toEqual([])
        expect(record).toMatchObject({ name, role })
        expect(record.expires_at === null ? undefined : new Date(record.expires_at).getTime()).toBe(
          expiry?.time.getTime(),
        )
        expect(record.expires_at ?? "Z").toMatch(/Z$/)
        expect(toKeyItem(stored(object))).toEqual({ id: record.id, name, created_at: record.created_at })
      }),
    )
  })

  it("has a valid record for any name and expiry from kubectl", () => {
    const metadataNames = fc.stringMatching(/^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$/)
    const texts = fc.oneof(
      expiries.map(({ text }) => text),
      fc.constant("9999-12-31T23:59:59-23:59"),
    )
    fc.assert(
      fc.property(metadataNames, fc.option(texts, { nil: undefined }), (name, expiresAt) => {
        const wanted = { name, metadataName: name, role: "viewer", expiresAt } as const
        const key = stored(toApiKey(wanted, identity))
        expect(findErrors(ApiKeySpecSchema, key.spec)).toEqual([])
        expect(findErrors(KeyRecordSchema, toKeyRecord(key))).toEqual([])
        expect(findErrors(KeyItemSchema, toKeyItem(key))).toEqual([])
      }),
    )
  })

  it("must expire at least a millisecond in the future", () => {
    const at = (expires_at: string) => checkKey({ name: "abc", role: "viewer", expires_at }, NOW)
    expect(at("2026-01-01T00:00:00.001Z")).toMatchObject({ wanted: { expiresAt: "2026-01-01T00:00:00.001Z" } })
    expect(at("2026-01-01T01:00:01+01:00")).toMatchObject({ wanted: { expiresAt: "2026-01-01T00:00:01Z" } })
    for (const late of ["2026-01-01T00:00:00Z", "2026-01-01T00:59:59+01:00"]) {
      expect(at(late)).toEqual({
        errors: [{ pointer: "/expires_at", detail: `expires_at must be in the future, not "${late}"` }],
        // The time was in the future before, so an earlier request may have been accepted.
        once: expect.objectContaining({ name: "abc" }),
      })
    }
    expect(checkKey({ name: "a", role: "viewer", expires_at: "2020-01-01T00:00:00Z" }, NOW)).not.toHaveProperty("once")
  })

  it("rejects a name that looks like a UUID, with the reason", () => {
    expect(checkKey({ name: "0b7e4c1e-5d0b-4f0e-9a55-2f3c8c9b7d11", role: "viewer" }, NOW)).toEqual({
      errors: [
        { pointer: "/name", detail: "name must not look like a UUID: the API would confuse it with a key's id" },
      ],
    })
  })

  it("is rejected with all errors at once", () => {
    const checked = checkKey({ name: "a", role: "owner", expires_at: "soon", extra: 1 }, NOW)
    const pointers = "errors" in checked ? checked.errors.map(({ pointer }) => pointer) : []
    expect([...new Set(pointers)].toSorted()).toEqual(["/expires_at", "/extra", "/name", "/role"])
  })
})

it("an update of a key may be empty, null or a role", () => {
  const checkKeyUpdate = (body: unknown) => {
    const result = checked<KeyUpdate>(body, { schema: KeyUpdateSchema, rules: [], context: undefined })
    return "errors" in result ? result : { role: result.body.role ?? undefined }
  }
  expect(checkKeyUpdate({})).toEqual({ role: undefined })
  expect(checkKeyUpdate({ role: null })).toEqual({ role: undefined })
  expect(checkKeyUpdate({ role: "admin" })).toEqual({ role: "admin" })
  expect(checkKeyUpdate({ role: "owner" })).toMatchObject({ errors: [{ pointer: "/role" }] })
  expect(checkKeyUpdate(null)).toMatchObject({ errors: [{ pointer: "" }] })
})
