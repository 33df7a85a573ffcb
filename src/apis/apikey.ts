import Type, { type Static } from "typebox"
import { findCondition } from "./conditions.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { ALLOWED, ConditionList, Int, immutable, SENSITIVE, StringEnum, Text, Time } from "./schema.ts"

/** The contract's project roles, least first. */
export const ROLES = ["viewer", "developer", "admin"] as const
export type Role = (typeof ROLES)[number]

/** Whether `role` allows what `needed` allows. */
export function roleAllows(role: Role, needed: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(needed)
}

export const ApiKeySpecSchema = Type.Object(
  {
    role: StringEnum(ROLES, { description: "What the key may do in its project." }),
    keyId: Type.String({
      pattern: "^[a-z0-9]{8,40}$",
      maxLength: 40,
      description: "The part of the key's value that names it.",
      [ALLOWED]: "8 to 40 of a-z and 0-9",
    }),
    tokenHash: Type.String({
      pattern: "^[0-9a-f]{64}$",
      maxLength: 64,
      description: "SHA-256 of the key's value, in hex.",
      [ALLOWED]: "64 of 0-9 and a-f",
      [SENSITIVE]: true,
    }),
    expiresAt: Type.Optional(Time("When the key stops working. Default: never.")),
  },
  { "x-kubernetes-validations": immutable(["keyId", "tokenHash"]) },
)
export type ApiKeySpec = Static<typeof ApiKeySpecSchema>

export const ApiKeyStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Int()),
  conditions: Type.Optional(ConditionList),
  machineUser: Type.Optional(Text(253, "Name of the ServiceAccount that stands for the key.")),
})
export type ApiKeyStatus = Static<typeof ApiKeyStatusSchema>

export type ApiKey = KubeObject<ApiKeySpec, ApiKeyStatus>
export type StoredApiKey = Stored<ApiKey>

/** Written by the ApiKey controller, dropped when the key's machine user and its rights are gone. */
export const API_KEY_FINALIZER = `${GROUP}/machine-user`

/** The types of an ApiKey's conditions. */
export const ApiKeyCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  Expired: "Expired",
} as const

/** Whether the key has stopped working by the time `now`. */
export function isExpired({ spec }: Pick<ApiKey, "spec">, now: Date): boolean {
  return spec.expiresAt !== undefined && new Date(spec.expiresAt).getTime() <= now.getTime()
}

/** Whether the key's machine user has the rights of the key's present role. */
export function isBound({ metadata, status }: Pick<ApiKey, "metadata" | "status">): boolean {
  const ready = findCondition(status?.conditions, ApiKeyCondition.Ready)
  return ready?.status === "True" && ready.observedGeneration === metadata.generation
}

export const API_KEY = defineKind({
  kind: "ApiKey",
  plural: "apikeys",
  singular: "apikey",
  shortNames: ["bkey"],
  namespaced: true,
  description: "A programmatic credential of a project. Only the hash of its value is kept.",
  spec: ApiKeySpecSchema,
  status: ApiKeyStatusSchema,
  rules: nameRules(LIMITS.keyName),
  printerColumns: [
    { name: "Role", type: "string", jsonPath: ".spec.role" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    // Not a date: kubectl shows the age of dates, and times to come have none.
    { name: "Expires", type: "string", jsonPath: ".spec.expiresAt" },
    AGE_COLUMN,
  ],
})
