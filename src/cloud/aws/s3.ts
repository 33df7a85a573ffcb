import { HeadBucketCommand, paginateListBuckets, type S3Client } from "@aws-sdk/client-s3"
import type { ReachedBucket } from "../account.ts"

/** A bucket as S3 lists it. */
export interface ListedBucket {
  name: string
  /** Absent where the service does not say it. */
  region: string | undefined
  /** RFC 3339. */
  created: string | undefined
}

/** Without a size of the page S3 answers in the old way, which names no regions. */
const BUCKETS_A_PAGE = 1000

/** All buckets of an account, page by page. Throws what the SDK throws. */
export async function* bucketPages(client: S3Client, signal: AbortSignal): AsyncGenerator<ListedBucket[]> {
  const paging = { client, pageSize: BUCKETS_A_PAGE }
  for await (const { Buckets = [] } of paginateListBuckets(paging, {}, { abortSignal: signal })) {
    yield Buckets.map(({ Name: name = "", BucketRegion: region, CreationDate }) => ({
      name,
      region,
      created: CreationDate?.toISOString(),
    }))
  }
}

/** What S3 answers where there is no such bucket, or none that the caller may read; a bad name can't be one's. */
const NOT_REACHED = [400, 403, 404]

/** A bucket, wherever it is and whoever owns it, if it can be listed. Throws what the SDK throws. */
export async function reachedBucket(
  client: S3Client,
  name: string,
  signal: AbortSignal,
): Promise<ReachedBucket | undefined> {
  // The SDK takes an ARN for a bucket too, and would go where that says.
  if (!/^[A-Za-z0-9._-]{3,255}$/.test(name)) return undefined
  try {
    const { BucketRegion: region } = await client.send(new HeadBucketCommand({ Bucket: name }), { abortSignal: signal })
    return region === undefined ? {} : { region }
  } catch (error) {
    const status = (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode
    if (status !== undefined && NOT_REACHED.includes(status)) return undefined
    throw error
  }
}
