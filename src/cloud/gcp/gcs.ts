import type { JWT } from "google-auth-library"
import type { ReachedBucket } from "../account.ts"

/** A bucket as the JSON API has it (https://cloud.google.com/storage/docs/json_api/v1/buckets). */
export interface GcsBucket {
  name: string
  location?: string
  timeCreated?: string
}

const API = "https://storage.googleapis.com/storage/v1"
const BUCKETS_A_PAGE = "1000"

/**
 * The buckets of a project, page by page. Over the library that signs in, not by the storage SDK: that one's requests
 * can't be ended, follow redirects, and go to whatever host its own environment variable names.
 */
export async function* bucketPages(google: JWT, project: string): AsyncGenerator<GcsBucket[]> {
  for (let pageToken: string | undefined = ""; pageToken !== undefined; ) {
    const query = new URLSearchParams({ project, maxResults: BUCKETS_A_PAGE, ...(pageToken !== "" && { pageToken }) })
    const { data } = await google.request<{ items?: GcsBucket[]; nextPageToken?: string }>({ url: `${API}/b?${query}` })
    yield data.items ?? []
    pageToken = data.nextPageToken || undefined
  }
}

/** A bucket, whoever owns it, if its objects can be listed. Where it is, only who may ask for the bucket itself is told. */
export async function reachedBucket(google: JWT, name: string): Promise<ReachedBucket | undefined> {
  const bucket = `${API}/b/${encodeURIComponent(name)}`
  const objects = await unlessRefused(google.request({ url: `${bucket}/o?maxResults=1&fields=kind` }))
  if (objects === undefined) return undefined
  const about = await unlessRefused(google.request<GcsBucket>({ url: `${bucket}?fields=location` }))
  const region = regionOf(about?.data.location)
  return region === undefined ? {} : { region }
}

/** Locations are written in capitals, regions of everything else are not. */
export function regionOf(location: string | undefined): string | undefined {
  return location?.toLowerCase()
}

/** Bad names of buckets are 400. */
const REFUSALS = [400, 403, 404]

async function unlessRefused<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch (error) {
    const { status } = error as { status?: number }
    // A key that can't sign in is refused with 400 too, by another host: that says nothing of the bucket.
    const isOfBucket = status !== undefined && REFUSALS.includes(status) && !isOfToken(error)
    if (isOfBucket) return undefined
    throw error
  }
}

function isOfToken(error: unknown): boolean {
  const { config } = error as { config?: { url?: URL | string } }
  return config?.url !== undefined && new URL(config.url).host === "oauth2.googleapis.com"
}
