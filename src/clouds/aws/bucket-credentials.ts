import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { BucketOpener, BucketScope, ScopedBucket } from "../bucket-access.ts"
import { AssumedRoles, partitionOf, scopedKey } from "./temporary-keys.ts"

/** Lifetime of a key. Agents request the next one after two thirds of it. */
const KEY_SECONDS = 4 * 3600

/** Region for STS if the bucket's region is unknown. */
const HOME_REGION = "us-east-1"

export interface AwsBucketOptions {
  /** Endpoint of an emulator for STS and S3, instead of AWS' own. */
  endpoint?: string
  roles?: AssumedRoles
}

/**
 * Issues keys that expire and that open one bucket and folder only.
 */
export function awsBuckets(options: AwsBucketOptions = {}): BucketOpener {
  return (credentials, scope, signal) => access(credentials, scope, { ...options, signal })
}

async function access(
  credentials: CredentialFields,
  scope: BucketScope,
  { signal, endpoint, roles = new AssumedRoles() }: AwsBucketOptions & { signal: AbortSignal },
): Promise<ScopedBucket> {
  const { bucket, prefix, launch, region = HOME_REGION } = scope
  const request = { region, launch, seconds: KEY_SECONDS, policy: bucketPolicy(scope), endpoint }
  const { expiration, ...keys } = await scopedKey(credentials, request, { roles, signal })
  return {
    path: prefix === "" ? bucket : `${bucket}/${prefix}`,
    remote: remoteOf(region, endpoint),
    keys,
    ...(expiration !== undefined && { expiration: expiration.toISOString() }),
  }
}

/**
 * Returns options of rclone's S3 backend (https://rclone.org/s3/). rclone must not create a bucket that it can't see.
 */
function remoteOf(region: string, endpoint: string | undefined): Record<string, string> {
  const common = { type: "s3", region, no_check_bucket: "true" }
  if (endpoint === undefined) return { ...common, provider: "AWS" }
  return { ...common, provider: "Other", endpoint, force_path_style: "true" }
}

const WRITE_ACTIONS = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]

/** Returns the session policy of a volume's key, with the minimal rights. Pure. */
export function bucketPolicy({ bucket, prefix, region = HOME_REGION, readOnly = false }: BucketScope): object {
  const [list, objects, keys] = readOnly
    ? [[], [], []]
    : [["s3:ListBucketMultipartUploads"], WRITE_ACTIONS, ["kms:GenerateDataKey"]]
  const arn = `arn:${partitionOf(region)}:s3:::${bucket}`
  const listed = prefix === "" ? {} : { Condition: { StringLike: { "s3:prefix": [prefix, `${prefix}/*`] } } }
  return {
    Version: "2012-10-17",
    Statement: [
      { Effect: "Allow", Action: ["s3:ListBucket", ...list], Resource: arn, ...listed },
      {
        Effect: "Allow",
        Action: ["s3:GetObject", ...objects],
        Resource: prefix === "" ? `${arn}/*` : `${arn}/${prefix}/*`,
      },
      {
        // For buckets that are encrypted with the account's own keys.
        Effect: "Allow",
        Action: ["kms:Decrypt", ...keys],
        Resource: "*",
        Condition: { StringLike: { "kms:ViaService": "s3.*.amazonaws.com*" } },
      },
    ],
  }
}
