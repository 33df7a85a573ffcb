import Type, { type Static } from "typebox"
import { findCondition } from "./conditions.ts"
import { LIMITS } from "./field-limits.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import {
  ALLOWED,
  type CelRule,
  ConditionList,
  immutable,
  MapSchema,
  ObservedGeneration,
  SENSITIVE,
  StringEnum,
  Text,
  Time,
} from "./schema.ts"

/** Project roles of the REST contract, from the least to the most rights. */
export const ROLES = ["viewer", "developer", "admin"] as const
export type Role = (typeof ROLES)[number]

/** Returns true if `role` includes the rights of `needed`. */
export function roleAllows(role: Role, needed: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(needed)
}

/**
 * Claims that say whose a token is. A token of any repository has the others, such as `ref`: alone, they would admit every
 * user of the issuer. GitHub: https://docs.github.com/actions/reference/security/oidc, GitLab:
 * https://docs.gitlab.com/ci/secrets/id_token_authentication/
 */
export const IDENTIFYING_CLAIMS = ["sub", "repository", "repository_id", "project_path", "project_id"] as const

/** Sentence about claims without one of IDENTIFYING_CLAIMS. */
export const MUST_IDENTIFY = `claims must have one of ${IDENTIFYING_CLAIMS.join(", ")}: the others are in the tokens of any user of the issuer`

const IDENTIFIES: CelRule = {
  rule: `self.claims.exists(claim, claim in [${IDENTIFYING_CLAIMS.map((claim) => `'${claim}'`).join(", ")}])`,
  message: MUST_IDENTIFY,
}

/** Tokens that stand for a key. */
export const TrustedTokensSchema = Type.Object(
  {
    issuer: Type.String({
      maxLength: 256,
      pattern: "^https?://[^#\\x00-\\x20\\x7f]+$",
      description: "Issuer of the tokens, as in their claim iss. The installation must allow it.",
      [ALLOWED]: "an issuer's URL, such as https://token.actions.githubusercontent.com",
    }),
    claims: MapSchema(
      Type.String({
        minLength: 1,
        maxLength: 256,
        pattern: "^[^*\\x00-\\x1f\\x7f]+$",
        [ALLOWED]: "the claim's whole value, without * and control characters: Berth compares it exactly",
      }),
      {
        keys: {
          minLength: 1,
          maxLength: 64,
          pattern: "^[A-Za-z0-9_]+$",
          allowed: "1 to 64 letters, digits and _",
        },
        minProperties: 1,
        maxProperties: 16,
        description: "Claims that a token must have, each with exactly this text.",
      },
    ),
  },
  {
    description: "Tokens that stand for the key, such as those of a CI system. Default: none.",
    "x-kubernetes-validations": [IDENTIFIES],
  },
)
export type TrustedTokens = Static<typeof TrustedTokensSchema>

export const ApiKeySpecSchema = Type.Object(
  {
    role: StringEnum(ROLES, { description: "Role of the key in its project: viewer, developer or admin." }),
    keyId: Type.String({
      pattern: "^[a-z0-9]{8,40}$",
      maxLength: 40,
      description: "Public part of the key's value; it identifies the key.",
      [ALLOWED]: "8 to 40 characters of a-z and 0-9",
    }),
    tokenHash: Type.String({
      pattern: "^[0-9a-f]{64}$",
      maxLength: 64,
      description: "SHA-256 of the key's value, in hex.",
      [ALLOWED]: "64 characters of 0-9 and a-f",
      [SENSITIVE]: true,
    }),
    expiresAt: Type.Optional(Time("Time at which the key expires. Default: never.")),
    oidc: Type.Optional(TrustedTokensSchema),
  },
  { "x-kubernetes-validations": [immutable(["keyId", "tokenHash", "oidc"])] },
)
export type ApiKeySpec = Static<typeof ApiKeySpecSchema>

export const ApiKeyStatusSchema = Type.Object({
  observedGeneration: ObservedGeneration,
  conditions: Type.Optional(ConditionList),
  machineUser: Type.Optional(Text(253, "ServiceAccount that the key authenticates as.")),
})
export type ApiKeyStatus = Static<typeof ApiKeyStatusSchema>

export type ApiKey = KubeObject<ApiKeySpec, ApiKeyStatus>
export type StoredApiKey = Stored<ApiKey>

/** Holds an ApiKey until its controller has deleted the machine user and its role bindings. */
export const API_KEY_FINALIZER = `${GROUP}/machine-user`

/** The types of an ApiKey's conditions. */
export const ApiKeyCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  Expired: "Expired",
} as const

/** Returns true if the key has expired at `now`. */
export function isExpired({ spec }: Pick<ApiKey, "spec">, now: Date): boolean {
  return spec.expiresAt !== undefined && new Date(spec.expiresAt).getTime() <= now.getTime()
}

/** Returns true if the key's machine user is bound to the key's current role. */
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
  conditions: Object.values(ApiKeyCondition),
  rules: nameRules(LIMITS.keyName),
  printerColumns: [
    { name: "Role", type: "string", jsonPath: ".spec.role" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    { name: "Reason", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason", priority: 1 },
    // Not a date: kubectl prints the age of a date, and a time in the future has no age.
    { name: "Expires", type: "string", jsonPath: ".spec.expiresAt" },
    AGE_COLUMN,
  ],
})
