import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { CONNECTION, CONNECTION_TYPES, type ConnectionType, type StoredConnection } from "../../apis/connection.ts"
import { credentialFieldsOf, SECRET_FIELDS } from "../../apis/credentials.ts"
import { fromMetadataName, toMetadataName } from "../../apis/names.ts"
import { faultsOf, faultsOfObject } from "../../apis/validate.ts"
import { ConnectionRecordSchema } from "./schema.ts"
import {
  checkConnection,
  checkConnectionChange,
  connectionOf,
  connectionRecordOf,
  faultsForConnection,
  withoutSecrets,
} from "./translate.ts"

const owner = { projectId: "p", organizationId: "o" }
const types = fc.constantFrom(...CONNECTION_TYPES)
const names = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9_-]{2,49}$/)
const marker = "a-secret-value"

function stored(type: ConnectionType, metadataName: string): StoredConnection {
  const identity = { namespace: "ns", metadataName, createdAt: "2026-01-02T03:04:05.000006Z" }
  const connection = connectionOf(type, "berth1.k.c.AA.AA", identity)
  const server = { uid: "u", resourceVersion: "1", generation: 1, creationTimestamp: "2026-01-02T03:04:05Z" }
  return { ...connection, metadata: { ...connection.metadata, ...server } }
}

/** Values that are right for every kind but gcp's key file. */
function fieldsOf(type: ConnectionType): Record<string, string> {
  const values: Record<string, string> = {
    client_id: "123e4567-e89b-12d3-a456-426614174000",
    subscription_id: "123e4567-e89b-12d3-a456-426614174000",
    account_id: "0123456789abcdef".repeat(2),
    gcp_project_id: "acme-1",
    keyfile_json: JSON.stringify({
      type: "service_account",
      project_id: "a",
      client_email: "b",
      private_key: `-----BEGIN PRIVATE KEY-----\n${marker}`,
    }),
  }
  return Object.fromEntries(credentialFieldsOf(type).map((field) => [field, values[field] ?? marker]))
}

describe("a connection", () => {
  it("of every type and name is taken, and becomes a Connection whose record is well formed", () => {
    fc.assert(
      fc.property(types, names, (type, name) => {
        const fields = fieldsOf(type)
        expect(checkConnection({ name, type, ...fields, project_id: null }, owner)).toEqual({
          body: { name, type, fields },
        })
        const connection = stored(type, toMetadataName(name) ?? "")
        expect(faultsOfObject(CONNECTION, connection)).toEqual([])
        expect(fromMetadataName(connection.metadata.name)).toBe(name)
        for (const visible of [{}, fields, withoutSecrets(fields)]) {
          const record = connectionRecordOf(connection, visible)
          expect(faultsOf(ConnectionRecordSchema, record)).toEqual([])
          expect(record).toMatchObject({ id: "u", name, type, ...visible })
        }
        for (const field of SECRET_FIELDS) expect(withoutSecrets(fields)[field]).toBeUndefined()
      }),
    )
  })

  it("lacks nothing: each missing field is named, and none of another type is taken", () => {
    fc.assert(
      fc.property(types, types, fc.nat(), (type, other, seed) => {
        const own = credentialFieldsOf(type)
        const left = own[seed % own.length] ?? ""
        const { [left]: _, ...rest } = fieldsOf(type)
        const foreign = credentialFieldsOf(other).filter((field) => !own.includes(field))
        const wrong = Object.fromEntries(foreign.map((field) => [field, marker]))
        const checked = checkConnection({ name: "abc", type, ...rest, ...wrong }, owner)
        const faults = "faults" in checked ? checked.faults : []
        const pointers = faults.map(({ pointer }) => pointer)
        expect(pointers).toEqual(expect.arrayContaining([`/${left}`, ...foreign.map((field) => `/${field}`)]))
        expect(JSON.stringify(faults)).not.toContain(marker)
      }),
    )
  })

  it("is not changed by its own record, in whatever view", () => {
    fc.assert(
      fc.property(types, names, (type, name) => {
        const connection = stored(type, toMetadataName(name) ?? "")
        const checked = checkConnectionChange(connectionRecordOf(connection), owner)
        if ("faults" in checked) throw new Error(JSON.stringify(checked.faults))
        expect(checked.body.fields).toEqual({})
        expect(faultsForConnection(connection, checked.body)).toEqual([])
      }),
    )
  })

  it("never makes a check throw, or say what was in it", () => {
    const value = fc.oneof(fc.jsonValue(), fc.constant(marker), fc.constant(`{"type":"${marker}"`), fc.constant(null))
    const fields = ["name", "type", "access_key_id", "secret_access_key", "keyfile_json", "token", "account_id"]
    const body = fc.oneof(fc.dictionary(fc.constantFrom(...fields), value), fc.jsonValue())
    fc.assert(
      fc.property(body, types, (given, type) => {
        const object = typeof given === "object" && given !== null ? given : {}
        const creations = [checkConnection(given, owner), checkConnection({ name: "abc", ...object, type }, owner)]
        const faults = creations.flatMap((checked) => ("faults" in checked ? checked.faults : []))
        const change = checkConnectionChange(given, owner)
        faults.push(...("faults" in change ? change.faults : faultsForConnection(stored(type, "abc"), change.body)))
        const said = faults.filter(({ pointer }) => !["/name", "/type", "/id", "/created_at"].includes(pointer))
        expect(JSON.stringify(said.map(({ detail }) => detail))).not.toContain(marker)
      }),
    )
  })
})
