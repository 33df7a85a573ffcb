import type { OAuth2Client } from "google-auth-library"
import type { ReachedBucket } from "../account.ts"

/** A bucket of the JSON API (https://cloud.google.com/storage/docs/json_api/v1/buckets). */
export interface GcsBucket {
  name: string
  location?: string
  timeCreated?: string
}

const API = "https://storage.googleapis.com/storage/v1"
const BUCKETS_A_PAGE = "1000"

/**
 * Yields the buckets of a project, page by page. Uses the sign-in library instead of the storage SDK. The SDK's
 * requests can't be aborted, follow redirects, and call any host that its own environment variable names.
 */
export async function* bucketPages(google: OAuth2Client, project: string): AsyncGenerator<GcsBucket[]> {
  for (let pageToken: string | undefined = ""; pageToken !== undefined; ) {
    const query = new URLSearchParams({ project, maxResults: BUCKETS_A_PAGE, ...(pageToken !== "" && { pageToken }) })
    const { data } = await google.request<{ items?: GcsBucket[]; nextPageToken?: string }>({ url: `${API}/b?${query}` })
    yield data.items ?? []
    pageToken = data.nextPageToken || undefined
  }
}

/**
 * Finds a bucket of any owner, if its objects can be listed. Only callers that may read the bucket itself get its
 * region.
 */
export async function reachedBucket(google: OAuth2Client, name: string): Promise<ReachedBucket | undefined> {
  const bucket = `${API}/b/${encodeURIComponent(name)}`
  const objects = await unlessRefused(google.request({ url: `${bucket}/o?maxResults=1&fields=kind` }))
  if (objects === undefined) return undefined
  const about = await unlessRefused(google.request<GcsBucket>({ url: `${bucket}?fields=location` }))
  const region = parseRegion(about?.data.location)
  return region === undefined ? {} : { region }
}

/** Lowers the case: locations are in capitals, all other regions are not. */
export function parseRegion(location: string | undefined): string | undefined {
  return location?.toLowerCase()
}

/** A malformed bucket name gives 400. */
const REFUSALS = [400, 403, 404]

async function unlessRefused<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch (error) {
    const { status } = error as { status?: number }
    // A key that can't sign in also gives 400, from another host. That proves nothing about the bucket.
    const isOfBucket = status !== undefined && REFUSALS.includes(status) && !isOfToken(error)
    if (isOfBucket) return undefined
    throw error
  }
}

function isOfToken(error: unknown): boolean {
  const { config } = error as { config?: { url?: URL | string } }
  return config?.url !== undefined && new URL(config.url).host === "oauth2.googleapis.com"
}
