import {
  KeyCreatedSchema,
  KeyItemSchema,
  KeyRecordSchema,
  KeySubmissionSchema,
  KeyUpdateSchema,
} from "../schemas/key.ts"
import { SORT_FIELDS, SORT_ORDERS } from "../sorting.ts"
import {
  IDEMPOTENCY_KEY,
  type Json,
  json,
  jsonOrYaml,
  operation,
  pageParameters,
  pageSchema,
  pathParameter,
  published,
  queryParameter,
} from "./parts.ts"

const TAGS = ["keys"]

/** The schemas that `keyPaths` refers to. */
export function keySchemas(): Json {
  return {
    KeySubmission: published(KeySubmissionSchema),
    KeyUpdate: published(KeyUpdateSchema),
    KeyCreated: published(KeyCreatedSchema),
    KeyRecord: published(KeyRecordSchema),
    KeyItem: published(KeyItemSchema),
    KeyList: pageSchema("keys", "KeyItem"),
  }
}

/** The contract's endpoints of API keys. */
export function keyPaths(): Json {
  const key = pathParameter("key")
  return {
    "/keys": {
      post: operation("createKey", "Make a key (admin). Its value is in this answer and nowhere else.", {
        tags: TAGS,
        parameters: [IDEMPOTENCY_KEY],
        requestBody: { required: true, content: jsonOrYaml("KeySubmission") },
        responses: { "201": { description: "Made, and usable.", content: json("KeyCreated") } },
      }),
      get: operation("listKeys", "List keys (viewer or higher).", {
        tags: TAGS,
        parameters: [
          queryParameter("name", { type: "string", description: "Only the key of exactly this name." }),
          ...sortParameters(),
          ...pageParameters(),
        ],
        responses: { "200": { description: "A page of keys.", content: json("KeyList") } },
      }),
    },
    "/keys/{key}": {
      get: operation("getKey", "A key, without its value (viewer or higher).", {
        tags: TAGS,
        parameters: [key],
        responses: { "200": { description: "The key.", content: json("KeyRecord") } },
      }),
      patch: operation("updateKey", "Change a key's role (admin).", {
        tags: TAGS,
        parameters: [key],
        requestBody: { required: true, content: jsonOrYaml("KeyUpdate") },
        responses: { "200": { description: "The changed key.", content: json("KeyRecord") } },
      }),
      delete: operation("deleteKey", "Delete a key; it is refused from now on (admin).", {
        tags: TAGS,
        parameters: [key],
        responses: { "204": { description: "Deleted." } },
      }),
    },
  }
}

/** The parameters by which lists of keys and connections are sorted. */
export function sortParameters(): Json[] {
  return [
    queryParameter("sort_by", { type: "string", enum: SORT_FIELDS, default: "created_at" }),
    queryParameter("sort_order", { type: "string", enum: SORT_ORDERS, default: "desc" }),
  ]
}
