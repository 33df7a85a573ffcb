import type { S3 } from "@aws-sdk/client-s3"
import type { ReachedBucket } from "../account.ts"

/** A bucket as S3 lists it. */
export interface ListedBucket {
  name: string
  /** Absent if the service does not return it. */
  region: string | undefined
  /** RFC 3339. */
  created: string | undefined
}

/** Without a page size S3 uses an older format of the answer, which has no regions. */
const BUCKETS_A_PAGE = 1000

/** Yields all buckets of an account, page by page. Throws the SDK's errors. */
export async function* bucketPages(client: S3, signal: AbortSignal): AsyncGenerator<ListedBucket[]> {
  const { default: sdk } = await import("@aws-sdk/client-s3")
  const paging = { client, pageSize: BUCKETS_A_PAGE }
  for await (const { Buckets = [] } of sdk.paginateListBuckets(paging, {}, { abortSignal: signal })) {
    yield Buckets.map(({ Name: name = "", BucketRegion: region, CreationDate }) => ({
      name,
      region,
      created: CreationDate?.toISOString(),
    }))
  }
}

/** Statuses of S3 for a missing bucket, or one that the caller may not read. A malformed name gives 400. */
const NOT_REACHED = [400, 403, 404]

/** Finds a bucket in any region and of any owner, if it can be listed. Throws the SDK's errors. */
export async function reachedBucket(client: S3, name: string, signal: AbortSignal): Promise<ReachedBucket | undefined> {
  // The SDK also accepts an ARN as the bucket, and would call the host that the ARN names.
  if (!/^[A-Za-z0-9._-]{3,255}$/.test(name)) return undefined
  try {
    const { BucketRegion: region } = await client.headBucket({ Bucket: name }, { abortSignal: signal })
    return region === undefined ? {} : { region }
  } catch (error) {
    const status = (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode
    if (status !== undefined && NOT_REACHED.includes(status)) return undefined
    throw error
  }
}
