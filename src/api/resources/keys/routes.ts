import type { Clock } from "../../../core/apis/clock.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { filter, paging } from "../../http/query.ts"
import { checkedBody, created, declareBody, json, noContent, record, routeDeclarer } from "../../http/route.ts"
import { SORTING } from "../../sorting.ts"
import type { Keys } from "./keys.ts"
import { KeyCreatedSchema, KeyItemSchema, KeyRecordSchema, KeySubmissionSchema, KeyUpdateSchema } from "./schema.ts"
import { checkKey, IDENTITY, toKeyItem, toKeyRecord, type WantedKey } from "./translate.ts"

export interface KeyServices {
  keysOf: (principal: Principal) => Keys
  clock: Clock
}

const RECORD = {
  id: "0b7e4c1e-5d0b-4f0e-9a55-2f3c8c9b7d11",
  name: "build",
  role: "developer",
  created_at: "2026-01-02T10:00:00Z",
  expires_at: "2031-01-31T11:00:00Z",
  oidc: null,
}

const KEY = namedSchema("KeyRecord", KeyRecordSchema, RECORD)
const CREATED = namedSchema("KeyCreated", KeyCreatedSchema, {
  ...RECORD,
  value: "berth_k3yid0123456_the-rest-of-the-value-is-shown-here-only-once",
})
const LIST = pageSchema("KeyList", "keys", namedSchema("KeyItem", KeyItemSchema))

const SUBMISSION = checkedBody<WantedKey, Principal, KeyServices>("KeySubmission", KeySubmissionSchema, {
  what: "The key",
  example: { name: "build", role: "developer", expires_at: "2031-01-31T12:00:00+01:00" },
  rules: [IDENTITY],
  check: (value, { services }) => {
    const checked = checkKey(value, services.clock.now())
    return "errors" in checked ? checked : { body: checked.wanted }
  },
})
const UPDATE = declareBody("KeyUpdate", KeyUpdateSchema, { what: "The update", example: { role: "developer" } })

const route = routeDeclarer<Principal, KeyServices>({ tag: "keys" })

/** Operations of the contract on API keys. */
export const keyRoutes = [
  route("POST /keys", {
    id: "createKey",
    summary: "Create a key. Only this response has its value.",
    role: "admin",
    body: SUBMISSION,
    idempotent: true,
    responses: {
      201: created(CREATED, "The key was created and is usable.", {
        links: {
          getKey: { key_id: "$response.body#/name" },
          updateKey: { key_id: "$response.body#/id" },
          deleteKey: { key_id: "$response.body#/id" },
        },
      }),
    },
    creates: true,
    problems: ["value-shown-once"],
    handle: async ({ body, idempotencyKey, principal }, { keysOf }) => {
      const { key, value } = await keysOf(principal).create(body, idempotencyKey)
      return {
        of: key,
        body: { ...toKeyRecord(key), value },
        location: `/keys/${key.metadata.uid}`,
        // The value is a secret: no cache may keep it.
        headers: { "Cache-Control": "no-store" },
      }
    },
    replay: ({ idempotencyKey = "", principal }, { keysOf }) => keysOf(principal).refuseReplay(idempotencyKey),
  }),
  route("GET /keys", {
    id: "listKeys",
    summary: "List keys.",
    role: "viewer",
    query: { name: filter("Only the key with exactly this name. Empty: all."), ...SORTING, ...paging() },
    responses: { 200: json(LIST, "A page of keys.") },
    handle: ({ query, principal }, { keysOf }) => {
      const { keys, total } = keysOf(principal).list(query)
      return { body: { keys: keys.map(toKeyItem), total, offset: query.offset, limit: query.limit } }
    },
  }),
  route("GET /keys/{key_id}", {
    id: "getKey",
    summary: "Get a key, without its value.",
    role: "viewer",
    responses: { 200: record(KEY, "The key.") },
    handle: async ({ path, principal }, { keysOf }) => {
      const key = await keysOf(principal).find(path.key_id)
      return { of: key, body: toKeyRecord(key) }
    },
  }),
  route("PATCH /keys/{key_id}", {
    id: "updateKey",
    summary: "Change a key's role.",
    role: "admin",
    body: UPDATE,
    ifMatch: true,
    responses: { 200: record(KEY, "The changed key.") },
    handle: async ({ path, body, precondition, principal }, { keysOf }) => {
      const key = await keysOf(principal).update(path.key_id, body, precondition)
      return { of: key, body: toKeyRecord(key) }
    },
  }),
  route("DELETE /keys/{key_id}", {
    id: "deleteKey",
    summary: "Delete a key. Requests with it are rejected at once.",
    role: "admin",
    ifMatch: true,
    responses: { 204: noContent("Deleted.") },
    handle: ({ path, precondition, principal }, { keysOf }) => keysOf(principal).remove(path.key_id, precondition),
  }),
]
