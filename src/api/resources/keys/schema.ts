import Type, { type Static } from "typebox"
import { ROLES, type Role, type TrustedTokens, TrustedTokensSchema } from "../../../core/apis/apikey.ts"
import { AnyTime, COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { conditionsField, ignoredConditions, OWN_TROUBLES } from "../../../core/records/conditions.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { nameSchema } from "../../names.ts"
import { Repeated } from "../../repetition.ts"

/** Schemas of an API key. The property names are exactly those of the contract. */

/** Time at which a key expires. */
export const ExpirySchema = Type.Unsafe<string | null>({
  ...AnyTime("Time at which the key expires, with any offset. Null: never."),
  type: ["string", "null"],
})

/** Body of POST /keys. */
export const KeySubmissionSchema = Type.Object({
  name: nameSchema("key"),
  role: StringEnum(ROLES, { description: "Role of the key." }),
  expires_at: Type.Optional(ExpirySchema),
  oidc: Type.Optional(TrustedTokensSchema),
})
export type KeySubmission = Static<typeof KeySubmissionSchema>

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
  oidc: Type.Unsafe<TrustedTokens | null>({
    [COMPONENT]: "TrustedTokensRecord",
    type: ["object", "null"],
    required: ["issuer", "claims"],
    properties: {
      issuer: Type.String(),
      claims: { type: "object", additionalProperties: { type: "string" } },
    },
    description: "Tokens that stand for the key. Null: none.",
  }),
  conditions: conditionsField(OWN_TROUBLES),
}

/** Body of PATCH /keys/{id}. */
export const KeyUpdateSchema = Type.Object({
  role: Type.Optional(
    Type.Unsafe<Role | null>({
      type: ["string", "null"],
      enum: [...ROLES, null],
      description: "New role of the key. Null: unchanged.",
    }),
  ),
  id: Repeated(record.id),
  name: Repeated(record.name),
  created_at: Repeated(record.created_at),
  expires_at: Repeated(record.expires_at),
  oidc: Repeated(record.oidc),
  conditions: ignoredConditions(),
})
export type KeyUpdate = Static<typeof KeyUpdateSchema>

/** Key in the responses of GET and PATCH. */
export const KeyRecordSchema = Type.Object(record)
export type KeyRecord = Static<typeof KeyRecordSchema>

/** Response of POST /keys, the only response with the value. */
export const KeyCreatedSchema = Type.Object({
  ...record,
  value: Type.String({ description: "Value of the key. Only this response contains it. Empty: tokens stand for it." }),
})
export type KeyCreated = Static<typeof KeyCreatedSchema>

/** Key in a list. */
export const KeyItemSchema = Type.Object({
  id: record.id,
  name: record.name,
  created_at: record.created_at,
  conditions: record.conditions,
})
export type KeyItem = Static<typeof KeyItemSchema>

/** Response of GET /keys. */
export type KeyList = PageOf<"keys", KeyItem>
