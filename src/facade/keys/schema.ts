import Type, { type Static } from "typebox"
import { ROLES, type Role } from "../../apis/apikey.ts"
import { StringEnum, Time } from "../../apis/schema.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { NameOf } from "../names.ts"

/** The REST API's shapes of an API key, with the contract's property names to the letter. */

/** When a key expires. */
export const ExpirySchema = Type.Unsafe<string | null>({
  ...Time("Time at which the key expires, with any offset. Null: never."),
  type: ["string", "null"],
})

/** What POST /keys takes. */
export const KeySubmissionSchema = Type.Object({
  name: NameOf("key"),
  role: StringEnum(ROLES, { description: "Role of the key." }),
  expires_at: Type.Optional(ExpirySchema),
})
export type KeySubmission = Static<typeof KeySubmissionSchema>

/** What PATCH /keys/{id} takes. */
export const KeyUpdateSchema = Type.Object({
  role: Type.Optional(
    Type.Unsafe<Role | null>({
      type: ["string", "null"],
      enum: [...ROLES, null],
      description: "New role of the key. Null: unchanged.",
    }),
  ),
})
export type KeyUpdate = Static<typeof KeyUpdateSchema>

const record = {
  id: Type.String({ description: "UUID." }),
  name: Type.String(),
  role: StringEnum(ROLES),
  created_at: Type.String({ format: "date-time" }),
  expires_at: Type.Unsafe<string | null>({
    type: ["string", "null"],
    format: "date-time",
    description: "Null: the key never expires.",
  }),
}

/** A key as GET and PATCH give it. */
export const KeyRecordSchema = Type.Object(record)
export type KeyRecord = Static<typeof KeyRecordSchema>

/** What POST /keys answers: the only place where the value is ever shown. */
export const KeyCreatedSchema = Type.Object({
  ...record,
  value: Type.String({ description: "Value of the key. Only this response contains it." }),
})
export type KeyCreated = Static<typeof KeyCreatedSchema>

/** A key in a list. */
export const KeyItemSchema = Type.Object({ id: record.id, name: record.name, created_at: record.created_at })
export type KeyItem = Static<typeof KeyItemSchema>

/** What GET /keys answers. */
export type KeyList = PageOf<"keys", KeyItem>
