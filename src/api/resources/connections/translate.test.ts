import fc from "fast-check"
import { describe, expect, it } from "vitest"
import {
  CONNECTION,
  CONNECTION_TYPES,
  type ConnectionType,
  type StoredConnection,
} from "../../../core/apis/connection.ts"
import { credentialFieldsOf, formsOf, SECRET_FIELDS } from "../../../core/apis/credentials.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import { errorsOfObject, findErrors } from "../../../core/apis/validate.ts"
import { ConnectionRecordSchema } from "./schema.ts"
import {
  checkConnection,
  checkConnectionChange,
  errorsForConnection,
  toConnection,
  toConnectionCheck,
  toConnectionRecord,
  toRestrictedRecord,
  withoutSecrets,
} from "./translate.ts"

const owner = { projectId: "p", organizationId: "o" }
const types = fc.constantFrom(...CONNECTION_TYPES)
const names = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9_-]{2,49}$/)
const marker = "a-secret-value"

function stored(type: ConnectionType, metadataName: string): StoredConnection {
  const identity = { namespace: "ns", metadataName, createdAt: "2026-01-02T03:04:05.000006Z" }
  const connection = toConnection({ type }, "berth1.k.c.AA.AA", identity)
  const server = { uid: "u", resourceVersion: "1", generation: 1, creationTimestamp: "2026-01-02T03:04:05Z" }
  return { ...connection, metadata: { ...connection.metadata, ...server } }
}

/** Returns valid credentials of a type. */
function fieldsOf(type: ConnectionType, [form] = formsOf(type)): Record<string, string> {
  const values: Record<string, string> = {
    client_id: "123e4567-e89b-12d3-a456-426614174000",
    subscription_id: "123e4567-e89b-12d3-a456-426614174000",
    account_id: "0123456789abcdef".repeat(2),
    gcp_project_id: "acme-1",
    role_arn: "arn:aws:iam::123456789012:role/berth",
    workload_identity_provider: "projects/1/locations/global/workloadIdentityPools/berth/providers/berth",
    service_account: "berth@acme-1.iam.gserviceaccount.com",
    service_account_id: "serviceaccount-e00abc",
    projects: "project-e00abc, project-u00abc",
    public_key_id: "publickey-e00abc",
    keyfile_json: JSON.stringify({
      type: "service_account",
      project_id: "a",
      client_email: "b",
      private_key: `-----BEGIN PRIVATE KEY-----\n${marker}`,
    }),
  }
  return Object.fromEntries(Object.keys(form?.properties ?? {}).map((field) => [field, values[field] ?? marker]))
}

describe("a connection", () => {
  it("is accepted with every type and name, and becomes a Connection with a valid record", () => {
    fc.assert(
      fc.property(types, names, (type, name) => {
        const fields = fieldsOf(type)
        expect(checkConnection({ name, type, ...fields, project_id: null }, owner)).toEqual({
          body: { name, type, fields },
        })
        const connection = stored(type, toMetadataName(name) ?? "")
        expect(errorsOfObject(CONNECTION, connection)).toEqual([])
        expect(fromMetadataName(connection.metadata.name)).toBe(name)
        for (const visible of [{}, fields, withoutSecrets(fields)]) {
          const record = toConnectionRecord(connection, visible)
          expect(findErrors(ConnectionRecordSchema, record)).toEqual([])
          expect(record).toMatchObject({ id: "u", name, type, ...visible })
        }
        for (const field of SECRET_FIELDS) expect(withoutSecrets(fields)[field]).toBeUndefined()
      }),
    )
  })

  it.each(["aws", "gcp", "azure"] as const)("is accepted in each form of %s", (type) => {
    for (const form of formsOf(type)) {
      const fields = fieldsOf(type, [form])
      expect(checkConnection({ name: "abc", type, ...fields }, owner)).toEqual({ body: { name: "abc", type, fields } })
    }
  })

  it("is rejected with the fields of two forms of gcp", () => {
    const mixture = Object.assign({}, ...formsOf("gcp").map((form) => fieldsOf("gcp", [form])))
    const checked = checkConnection({ name: "abc", type: "gcp", ...mixture }, owner)
    expect(checked).toEqual({ errors: [{ pointer: "/keyfile_json", detail: expect.stringContaining("unknown") }] })
  })

  it("is rejected with each missing field and each field of another type", () => {
    fc.assert(
      fc.property(types, types, fc.nat(), (type, other, seed) => {
        const own = credentialFieldsOf(type)
        const needed = Object.keys(fieldsOf(type)).filter((field) => type !== "azure" || field !== "client_secret")
        const left = needed[seed % needed.length] ?? ""
        const { [left]: _, ...rest } = fieldsOf(type)
        const foreign = credentialFieldsOf(other).filter((field) => !own.includes(field))
        const wrong = Object.fromEntries(foreign.map((field) => [field, marker]))
        const checked = checkConnection({ name: "abc", type, ...rest, ...wrong }, owner)
        const errors = "errors" in checked ? checked.errors : []
        const pointers = errors.map(({ pointer }) => pointer)
        expect(pointers).toEqual(expect.arrayContaining([`/${left}`, ...foreign.map((field) => `/${field}`)]))
        expect(JSON.stringify(errors)).not.toContain(marker)
      }),
    )
  })

  it("is not changed by its own record", () => {
    fc.assert(
      fc.property(types, names, (type, name) => {
        const connection = stored(type, toMetadataName(name) ?? "")
        const checked = checkConnectionChange(toConnectionRecord(connection), owner)
        if ("errors" in checked) throw new Error(JSON.stringify(checked.errors))
        expect(checked.body.fields).toEqual({})
        expect(errorsForConnection(connection, checked.body)).toEqual([])
      }),
    )
  })

  it("has its capabilities in its record, without facts about the account for others than admins", () => {
    const vms = { status: "False", reason: "NetworkMissing", message: "no network default in project yard-1" } as const
    const lastTransitionTime = "2026-11-27T02:00:00Z"
    const condition = { type: "Prices", status: "False", reason: "Forbidden", message: "yard-1 denies" } as const
    const connection = {
      ...stored("gcp", "main"),
      status: { capabilities: { vms }, conditions: [{ ...condition, observedGeneration: 1, lastTransitionTime }] },
    }
    const record = toConnectionRecord(connection)
    expect(record).toMatchObject({
      capabilities: { vms },
      conditions: [{ ...condition, last_transition_time: lastTransitionTime }],
    })
    const restricted = toRestrictedRecord(connection)
    expect(JSON.stringify(restricted)).not.toContain("yard-1")
    expect(restricted.conditions).toMatchObject([{ type: "Prices", status: "False", reason: "Forbidden" }])
    expect(restricted.capabilities).toEqual({ vms: { status: "False", reason: "NetworkMissing" } })
    for (const each of [record, restricted]) {
      expect(findErrors(ConnectionRecordSchema, each)).toEqual([])
      expect(checkConnectionChange(each, owner)).toMatchObject({ body: { fields: {} } })
    }
  })

  it("never makes a check throw or show a value of its credentials", () => {
    const value = fc.oneof(fc.jsonValue(), fc.constant(marker), fc.constant(`{"type":"${marker}"`), fc.constant(null))
    const fields = ["name", "type", "access_key_id", "secret_access_key", "keyfile_json", "token", "account_id"]
    const body = fc.oneof(fc.dictionary(fc.constantFrom(...fields), value), fc.jsonValue())
    fc.assert(
      fc.property(body, types, (given, type) => {
        const object = typeof given === "object" && given !== null ? given : {}
        const creations = [checkConnection(given, owner), checkConnection({ name: "abc", ...object, type }, owner)]
        const errors = creations.flatMap((checked) => ("errors" in checked ? checked.errors : []))
        const change = checkConnectionChange(given, owner)
        errors.push(...("errors" in change ? change.errors : errorsForConnection(stored(type, "abc"), change.body)))
        const said = errors.filter(({ pointer }) => !["/name", "/type", "/id", "/created_at"].includes(pointer))
        expect(JSON.stringify(said.map(({ detail }) => detail))).not.toContain(marker)
      }),
    )
  })
})

describe("the result of a check", () => {
  const time = "2026-01-01T00:00:00Z"
  const lastCheck = { request: "now", time, reason: "Verified", message: "the credentials open aws 1" }
  const granted = { status: "True", reason: "PermissionsGranted", message: "" }
  const unknown = { status: "Unknown", reason: "PermissionsUnknown", message: "" }
  const denied = { status: "False", reason: "PermissionsMissing", message: "" }
  const unanswered = { status: "Unknown", reason: "Unanswered", message: "HTTP 503" }
  const checkOf = (capabilities: object) => {
    const connection = { metadata: { name: "main" }, status: { lastCheck, capabilities } }
    return toConnectionCheck(connection as unknown as StoredConnection, "now")
  }

  it.each([
    ["passed", "Verified", { vms: granted }],
    ["passed", "Verified", { vms: unknown }],
    ["passed", "Verified", { vms: granted, buckets: unanswered }],
    ["incomplete", "Verified", { vms: granted, buckets: denied }],
    ["incomplete", "Verified", { vms: unanswered, buckets: denied }],
    ["unreachable", "Unanswered", { vms: unanswered }],
  ])("is %s (%s) for %j", (result, reason, uses) => expect(checkOf(uses)).toMatchObject({ result, reason }))

  it("says that the provider did not answer about VMs", () =>
    expect(checkOf({ vms: unanswered }).message).toBe(
      "the credentials open aws 1, but the provider did not answer whether they may start VMs: HTTP 503",
    ))
})
