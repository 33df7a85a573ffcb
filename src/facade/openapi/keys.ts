import {
  KeyCreatedSchema,
  KeyItemSchema,
  KeyRecordSchema,
  KeySubmissionSchema,
  KeyUpdateSchema,
} from "../schemas/key.ts"
import { SORT_FIELDS, SORT_ORDERS } from "../sorting.ts"
import {
  bodySchema,
  createdResponse,
  IDEMPOTENCY_KEY,
  IF_MATCH,
  IF_NONE_MATCH,
  type Json,
  json,
  jsonOrYaml,
  links,
  operation,
  pageParameters,
  pageSchema,
  pathParameter,
  published,
  queryParameter,
  recordResponse,
  recordResponses,
} from "./parts.ts"
import { NO_UUID } from "./rules.ts"

const TAGS = ["keys"]

const SUBMISSION = { name: "build", role: "developer", expires_at: "2031-01-31T12:00:00+01:00" }

const RECORD = {
  id: "0b7e4c1e-5d0b-4f0e-9a55-2f3c8c9b7d11",
  name: "build",
  role: "developer",
  created_at: "2026-01-02T10:00:00Z",
  expires_at: "2031-01-31T11:00:00Z",
}

/** The schemas that `keyPaths` refers to. */
export function keySchemas(): Json {
  return {
    KeySubmission: bodySchema(KeySubmissionSchema, {
      "/properties/name": NO_UUID,
    }),
    KeyUpdate: bodySchema(KeyUpdateSchema),
    KeyCreated: published(KeyCreatedSchema),
    KeyRecord: published(KeyRecordSchema),
    KeyItem: published(KeyItemSchema),
    KeyList: pageSchema("keys", "KeyItem"),
  }
}

const NEXT = links({
  getKey: { key_id: "$response.body#/name" },
  updateKey: { key_id: "$response.body#/id" },
  deleteKey: { key_id: "$response.body#/id" },
})

/** The contract's endpoints of API keys. */
export function keyPaths(): Json {
  return { "/keys": collectionPath(), "/keys/{key_id}": keyPath() }
}

function collectionPath(): Json {
  const value = "berth_k3yid0123456_the-rest-of-the-value-is-shown-here-only-once"
  return {
    post: operation("createKey", "Make a key (admin). Its value is in this answer and nowhere else.", {
      tags: TAGS,
      parameters: [IDEMPOTENCY_KEY],
      requestBody: { required: true, content: jsonOrYaml("KeySubmission", SUBMISSION) },
      responses: {
        "201": { ...createdResponse("Made, and usable.", json("KeyCreated", { ...RECORD, value })), ...NEXT },
      },
      problems: [409],
    }),
    get: operation("listKeys", "List keys (viewer or higher).", {
      tags: TAGS,
      parameters: [
        queryParameter("name", { type: "string", description: "Only the key of exactly this name; empty: all." }),
        ...sortParameters(),
        ...pageParameters(),
      ],
      responses: { "200": { description: "A page of keys.", content: json("KeyList") } },
    }),
  }
}

function keyPath(): Json {
  const key = pathParameter("key_id")
  return {
    get: operation("getKey", "A key, without its value (viewer or higher).", {
      tags: TAGS,
      parameters: [key, IF_NONE_MATCH],
      responses: recordResponses("The key.", json("KeyRecord", RECORD)),
      problems: [404],
    }),
    patch: operation("updateKey", "Change a key's role (admin).", {
      tags: TAGS,
      parameters: [key, IF_MATCH],
      requestBody: { required: true, content: jsonOrYaml("KeyUpdate", { role: "developer" }) },
      responses: { "200": recordResponse("The changed key.", json("KeyRecord", RECORD)) },
      problems: [404, 412],
    }),
    delete: operation("deleteKey", "Delete a key; it is refused from now on (admin).", {
      tags: TAGS,
      parameters: [key, IF_MATCH],
      responses: { "204": { description: "Deleted." } },
      problems: [404, 412],
    }),
  }
}

/** The parameters by which lists of keys and connections are sorted. */
export function sortParameters(): Json[] {
  return [
    queryParameter("sort_by", { type: "string", enum: SORT_FIELDS, default: "created_at" }),
    queryParameter("sort_order", { type: "string", enum: SORT_ORDERS, default: "desc" }),
  ]
}
