import { API_KEY, type Role, type StoredApiKey } from "../../apis/apikey.ts"
import { ANNOTATIONS, API_VERSION } from "../../apis/meta.ts"
import { fromMetadataName, isUuid, toMetadataName } from "../../apis/names.ts"
import { withoutNulls } from "../../apis/nulls.ts"
import { type Fault, faultsOf } from "../../apis/validate.ts"
import {
  type KeyItem,
  type KeyRecord,
  type KeySubmission,
  KeySubmissionSchema,
  type KeyUpdate,
  KeyUpdateSchema,
} from "../schemas/key.ts"
import { type Refused, refusedBy } from "./checked.ts"

/** A checked submission of a key: in the ApiKey's terms where they are others. */
export interface WantedKey {
  name: string
  metadataName: string
  role: Role
  /** RFC 3339 in UTC. */
  expiresAt: string | undefined
}

/** Checks a parsed body of POST /keys: the key that is wanted, or everything that is wrong. */
export function checkKey(body: unknown, now: Date): { wanted: WantedKey } | Refused<WantedKey> {
  const value = withoutNulls(KeySubmissionSchema, body, "fields")
  const faults = faultsOf(KeySubmissionSchema, value)
  if (faults.length > 0) return { faults }
  const { name, role, expires_at } = value as KeySubmission
  const metadataName = toMetadataName(name)
  const expiresAt = typeof expires_at === "string" ? inUtc(expires_at) : undefined
  const wrong = [...nameFaults(name), ...expiryFaults(expires_at)]
  if (metadataName === undefined) return { faults: wrong }
  const wanted = { name, metadataName, role, expiresAt }
  return refusedBy(wanted, wrong, pastFaults(expires_at, now)) ?? { wanted }
}

function nameFaults(name: string): Fault[] {
  if (!isUuid(name)) return []
  return [{ pointer: "/name", detail: "name must not look like a UUID: it would shadow a key's id" }]
}

function pastFaults(expiresAt: string | null | undefined, now: Date): Fault[] {
  if (typeof expiresAt !== "string" || new Date(expiresAt).getTime() > now.getTime()) return []
  return [{ pointer: "/expires_at", detail: `expires_at must be in the future, not ${JSON.stringify(expiresAt)}` }]
}

function expiryFaults(expiresAt: string | null | undefined): Fault[] {
  if (typeof expiresAt !== "string" || new Date(expiresAt).getUTCFullYear() <= 9999) return []
  return [{ pointer: "/expires_at", detail: "expires_at must be before the year 10000: leave it out for never" }]
}

/** The role that a parsed body of PATCH /keys/{id} wants, undefined: as it is; or everything that is wrong. */
export function checkKeyUpdate(body: unknown): { role: Role | undefined } | { faults: Fault[] } {
  const faults = faultsOf(KeyUpdateSchema, body)
  return faults.length > 0 ? { faults } : { role: (body as KeyUpdate).role ?? undefined }
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
