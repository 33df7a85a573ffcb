import type { CredentialFields } from "../../apis/credentials.ts"
import type { BucketOpener, BucketScope, ScopedBucket } from "../bucket-access.ts"
import { federatedKey, partitionOf } from "./federation.ts"

/** How long a key lasts; agents ask for another one when two thirds are over. */
const KEY_SECONDS = 4 * 3600

/** Where STS is asked when nobody knows the bucket's region. */
const HOME_REGION = "us-east-1"

export interface AwsBucketOptions {
  /** Instead of AWS' own, of STS and S3: an emulator's. */
  endpoint?: string
}

/**
 * Gives out keys for one bucket and folder and nothing else, that end by themselves: GetFederationToken with a session
 * policy, which can take away from what the access key may do and never adds to it.
 */
export function awsBuckets(options: AwsBucketOptions = {}): BucketOpener {
  return (credentials, scope, signal) => access(credentials, scope, { ...options, signal })
}

async function access(
  credentials: CredentialFields,
  scope: BucketScope,
  { signal, endpoint }: AwsBucketOptions & { signal: AbortSignal },
): Promise<ScopedBucket> {
  const { bucket, prefix, launch, region = HOME_REGION } = scope
  const request = { region, launch, seconds: KEY_SECONDS, policy: bucketPolicy(scope), endpoint }
  const { expiration, ...keys } = await federatedKey(credentials, request, signal)
  return {
    path: prefix === "" ? bucket : `${bucket}/${prefix}`,
    remote: remoteOf(region, endpoint),
    keys,
    ...(expiration !== undefined && { expiration }),
  }
}

/** Options of rclone's S3 backend (https://rclone.org/s3/). It is not to make the bucket when it can't see it. */
function remoteOf(region: string, endpoint: string | undefined): Record<string, string> {
  const common = { type: "s3", region, no_check_bucket: "true" }
  if (endpoint === undefined) return { ...common, provider: "AWS" }
  return { ...common, provider: "Other", endpoint, force_path_style: "true" }
}

/** What a volume needs and no more: the session policy of its key. Pure. */
export function bucketPolicy({ bucket, prefix, region = HOME_REGION }: BucketScope): object {
  const arn = `arn:${partitionOf(region)}:s3:::${bucket}`
  const listed = prefix === "" ? {} : { Condition: { StringLike: { "s3:prefix": [prefix, `${prefix}/*`] } } }
  return {
    Version: "2012-10-17",
    Statement: [
      { Effect: "Allow", Action: ["s3:ListBucket", "s3:ListBucketMultipartUploads"], Resource: arn, ...listed },
      {
        Effect: "Allow",
        Action: [
          "s3:GetObject",
          "s3:PutObject",
          "s3:DeleteObject",
          "s3:AbortMultipartUpload",
          "s3:ListMultipartUploadParts",
        ],
        Resource: prefix === "" ? `${arn}/*` : `${arn}/${prefix}/*`,
      },
      {
        // Of buckets that are encrypted with the account's own keys.
        Effect: "Allow",
        Action: ["kms:Decrypt", "kms:GenerateDataKey"],
        Resource: "*",
        Condition: { StringLike: { "kms:ViaService": "s3.*.amazonaws.com*" } },
      },
    ],
  }
}
