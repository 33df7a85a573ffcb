import { API_KEY, type Role, type StoredApiKey } from "../../apis/apikey.ts"
import { ANNOTATIONS, API_VERSION } from "../../apis/meta.ts"
import { fromMetadataName, toMetadataName } from "../../apis/names.ts"
import { faultsOf } from "../../apis/validate.ts"
import { checked, type Refused, type Rule, type Unchecked } from "../../http/checked.ts"
import { ExpirySchema, type KeyItem, type KeyRecord, type KeySubmission, KeySubmissionSchema } from "./schema.ts"

/** A checked submission of a key: in the ApiKey's terms where they are others. */
export interface WantedKey {
  name: string
  metadataName: string
  role: Role
  /** RFC 3339 in UTC. */
  expiresAt: string | undefined
}

/** Checks a parsed body of POST /keys: returns the wanted key, or all faults. */
export function checkKey(body: unknown, now: Date): { wanted: WantedKey } | Refused<WantedKey> {
  const result = checked<KeySubmission, Date>(body, { schema: KeySubmissionSchema, rules: [EXPIRY], context: now })
  if (!("faults" in result)) return { wanted: wantedOf(result.body) }
  const { faults, once } = result
  return { faults, ...(once !== undefined && { once: wantedOf(once) }) }
}

function wantedOf({ name, role, expires_at }: KeySubmission): WantedKey {
  // Every name that the schema allows has a metadata.name.
  const metadataName = toMetadataName(name) ?? name
  return { name, metadataName, role, expiresAt: typeof expires_at === "string" ? inUtc(expires_at) : undefined }
}

const EXPIRY: Rule<Date> = {
  faults: (body) => {
    const time = expiryIn(body)
    if (time === undefined || new Date(time).getUTCFullYear() <= 9999) return []
    return [{ pointer: "/expires_at", detail: "expires_at must be before the year 10000: leave it out for never" }]
  },
  faultsNow: (body, now) => {
    const time = expiryIn(body)
    if (time === undefined || new Date(time).getTime() > now.getTime()) return []
    return [{ pointer: "/expires_at", detail: `expires_at must be in the future, not ${JSON.stringify(time)}` }]
  },
}

/** The expiry, where the schema takes it. */
function expiryIn({ expires_at }: Unchecked): string | undefined {
  const isTime = typeof expires_at === "string" && faultsOf(ExpirySchema, expires_at).length === 0
  return isTime ? expires_at : undefined
}

/** What makes an ApiKey out of what is wanted. */
export interface KeyIdentity {
  namespace: string
  keyId: string
  tokenHash: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotencyKey: string | undefined
}

/** The ApiKey of a wanted key. */
export function apiKeyOf(
  wanted: WantedKey,
  identity: KeyIdentity,
): Pick<StoredApiKey, "apiVersion" | "kind" | "spec"> & {
  metadata: { name: string; namespace: string; annotations: Record<string, string> }
} {
  const { namespace, keyId, tokenHash, createdAt, idempotencyKey } = identity
  const { metadataName, role, expiresAt } = wanted
  return {
    apiVersion: API_VERSION,
    kind: API_KEY.kind,
    metadata: {
      name: metadataName,
      namespace,
      annotations: {
        [ANNOTATIONS.createdAt]: createdAt,
        ...(idempotencyKey !== undefined && { [ANNOTATIONS.idempotencyKey]: idempotencyKey }),
      },
    },
    spec: { role, keyId, tokenHash, ...(expiresAt !== undefined && { expiresAt }) },
  }
}

/** A key as GET shows it; its value is known to nobody but its owner. */
export function keyRecordOf({ metadata, spec }: StoredApiKey): KeyRecord {
  return {
    id: metadata.uid,
    name: fromMetadataName(metadata.name),
    role: spec.role,
    created_at: metadata.creationTimestamp,
    expires_at: spec.expiresAt === undefined ? null : inUtc(spec.expiresAt),
  }
}

/** A key as lists show it. */
export function keyItemOf({ metadata }: StoredApiKey): KeyItem {
  return { id: metadata.uid, name: fromMetadataName(metadata.name), created_at: metadata.creationTimestamp }
}

/** The same time in UTC, with its fraction only where it has one; a time in UTC stays as it is. */
function inUtc(time: string): string {
  if (time.endsWith("Z")) return time
  const utc = new Date(time).toISOString().replace(/[.]000Z$/, "Z")
  // Beyond the years that RFC 3339 can write in UTC: better with its offset than not at all.
  return /^[+-]/.test(utc) ? time : utc
}
