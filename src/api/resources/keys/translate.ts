import {
  API_KEY,
  IDENTIFYING_CLAIMS,
  MUST_IDENTIFY,
  type Role,
  type StoredApiKey,
  type TrustedTokens,
} from "../../../core/apis/apikey.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import { defined } from "../../../core/apis/defined.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import { findErrors } from "../../../core/apis/validate.ts"
import { ownTroubles } from "../../../core/records/conditions.ts"
import { checked, type Refused, type Rule, type Unchecked } from "../../http/checked.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import { ExpirySchema, type KeyItem, type KeyRecord, type KeySubmission, KeySubmissionSchema } from "./schema.ts"

/** Checked submission of a key, with the ApiKey's names of fields. */
export interface WantedKey {
  name: string
  metadataName: string
  role: Role
  /** RFC 3339 in UTC. */
  expiresAt: string | undefined
  /** Tokens that stand for the key, which then has no value. */
  oidc?: TrustedTokens | undefined
}

/** Checks a parsed body of POST /keys. Returns the wanted key, or all errors. */
export function checkKey(body: unknown, now: Date): { wanted: WantedKey } | Refused<WantedKey> {
  const result = checked<KeySubmission, Date>(body, {
    schema: KeySubmissionSchema,
    rules: [EXPIRY, IDENTITY],
    context: now,
  })
  if (!("errors" in result)) return { wanted: wantedOf(result.body) }
  const { errors, once } = result
  return { errors, ...(once !== undefined && { once: wantedOf(once) }) }
}

function wantedOf({ name, role, expires_at, oidc }: KeySubmission): WantedKey {
  // Every name that the schema allows has a metadata.name.
  const metadataName = toMetadataName(name) ?? name
  return {
    name,
    metadataName,
    role,
    expiresAt: typeof expires_at === "string" ? inUtc(expires_at.toUpperCase()) : undefined,
    oidc,
  }
}

/** Rule of the kind that only the API server knows: IDENTIFYING_CLAIMS. */
export const IDENTITY: Rule = {
  keywords: {
    "/properties/oidc/properties/claims": { anyOf: IDENTIFYING_CLAIMS.map((claim) => ({ required: [claim] })) },
  },
  errors: ({ oidc }) => {
    const claims = (oidc as { claims?: unknown } | undefined | null)?.claims
    if (typeof claims !== "object" || claims === null) return []
    if (IDENTIFYING_CLAIMS.some((claim) => Object.hasOwn(claims, claim))) return []
    return [{ pointer: "/oidc/claims", detail: `oidc.${MUST_IDENTIFY}` }]
  },
}

const EXPIRY: Rule<Date> = {
  errors: (body) => {
    const time = expiryIn(body)
    if (time === undefined || new Date(time).getUTCFullYear() <= 9999) return []
    return [{ pointer: "/expires_at", detail: "expires_at must be before the year 10000: leave it out for never" }]
  },
  errorsNow: (body, now) => {
    const time = expiryIn(body)
    if (time === undefined || new Date(time).getTime() > now.getTime()) return []
    return [{ pointer: "/expires_at", detail: `expires_at must be in the future, not ${JSON.stringify(time)}` }]
  },
}

/** Returns the expiry if the schema accepts it. */
function expiryIn({ expires_at }: Unchecked): string | undefined {
  const isTime = typeof expires_at === "string" && findErrors(ExpirySchema, expires_at).length === 0
  return isTime ? expires_at.toUpperCase() : undefined
}

/** Metadata and secrets of an ApiKey to create. */
export interface KeyIdentity {
  namespace: string
  keyId: string
  tokenHash: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotencyKey: string | undefined
}

/** Returns the ApiKey of a wanted key. */
export function toApiKey(
  wanted: WantedKey,
  identity: KeyIdentity,
): Pick<StoredApiKey, "apiVersion" | "kind" | "spec"> & {
  metadata: { name: string; namespace: string; labels: Record<string, string>; annotations: Record<string, string> }
} {
  const { namespace, keyId, tokenHash, createdAt, idempotencyKey } = identity
  const { metadataName, role, expiresAt, oidc } = wanted
  const { labels, annotations } = idempotencyMarks(idempotencyKey === undefined ? undefined : { key: idempotencyKey })
  return {
    apiVersion: API_VERSION,
    kind: API_KEY.kind,
    metadata: {
      name: metadataName,
      namespace,
      labels,
      annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations },
    },
    spec: { role, keyId, tokenHash, ...defined({ expiresAt, oidc }) },
  }
}

/** Returns the record of a key, without its value. */
export function toKeyRecord(key: StoredApiKey): KeyRecord {
  const { metadata, spec } = key
  return {
    id: metadata.uid,
    name: fromMetadataName(metadata.name),
    role: spec.role,
    created_at: creationTimeOf(key),
    expires_at: spec.expiresAt === undefined ? null : inUtc(spec.expiresAt),
    oidc: spec.oidc ?? null,
    ...ownTroubles(key),
  }
}

/** Returns the record of a key in a list. */
export function toKeyItem(key: StoredApiKey): KeyItem {
  const { uid, name } = key.metadata
  return { id: uid, name: fromMetadataName(name), created_at: creationTimeOf(key), ...ownTroubles(key) }
}

/** Converts a time to UTC, without a fraction of zero. A time in UTC is unchanged. */
function inUtc(time: string): string {
  if (time.endsWith("Z")) return time
  const utc = new Date(time).toISOString().replace(/[.]000Z$/, "Z")
  // RFC 3339 has no form for years after 9999 or before 0. A time that UTC moves there keeps its offset.
  return /^[+-]/.test(utc) ? time : utc
}
