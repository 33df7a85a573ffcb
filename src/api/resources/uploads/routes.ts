import type { Request } from "express"
import Type, { type Static } from "typebox"
import { SHA256_PATTERN } from "../../../core/apis/job.ts"
import { ALLOWED } from "../../../core/apis/schema.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { namedSchema } from "../../http/json-schema.ts"
import { badRequest, notFound, Problem } from "../../http/problem.ts"
import type { ConcurrencyLimit } from "../../http/rate-limits.ts"
import { json, routeDeclarer } from "../../http/route.ts"
import { allowSeconds } from "../../http/server.ts"
import type { StoredUpload } from "../../uploads/store.ts"
import type { Uploads } from "./uploads.ts"

export interface UploadServices {
  uploads: Uploads
  /** Limit of the uploads of a principal at the same time. */
  uploading: ConcurrencyLimit
  /** Longest time of an upload, seconds. */
  uploadSeconds: number
}

/** Uploads of one caller at the same time. */
export const MOST_UPLOADS = 4

/** Default of the longest time of an upload, seconds. 100 MiB in this time are 0.9 Mbit/s. */
export const UPLOAD_SECONDS = 900

const MEDIA_TYPE = "application/gzip"

export const UploadSchema = Type.Object({
  sha256: Type.String({ description: "SHA-256 of the archive." }),
  bytes: Type.Integer({ description: "Size of the archive." }),
  used_at: Type.String({ description: "Time of the last upload or use. An upload without a job is kept for an hour." }),
})
export type UploadRecord = Static<typeof UploadSchema>

const UPLOAD = namedSchema("Upload", UploadSchema, {
  sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
  bytes: 183_204,
  used_at: "2026-11-02T09:30:00.000Z",
})

const HASH = {
  description: "SHA-256 of the archive, 64 digits of 0-9 and a-f.",
  schema: Type.String({ pattern: SHA256_PATTERN, [ALLOWED]: "64 digits of 0-9 and a-f" }),
  example: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}

const route = routeDeclarer<Principal, UploadServices>({ tag: "uploads" })

export const uploadRoutes = [
  route("PUT /uploads/{sha256}", {
    id: "putUpload",
    summary: "Upload the working directory of jobs.",
    role: "developer",
    path: { sha256: HASH },
    stream: { mediaType: MEDIA_TYPE, description: "Archive (tar.gz), whose SHA-256 is the one in the path." },
    responses: { 200: json(UPLOAD, "It was there already."), 201: json(UPLOAD, "Stored.") },
    problems: ["project-limit"],
    handle: async ({ req, res, path: { sha256 }, principal }, { uploads, uploading, uploadSeconds }) => {
      const bytes = announcedBytes(req)
      const detail = `You send ${MOST_UPLOADS} uploads at the same time: wait until one of them has ended.`
      uploading.hold(principal.id, res, { detail, retryAfterSeconds: 5 })
      allowSeconds(req, uploadSeconds)
      const ref = { namespace: principal.project.namespace, sha256 }
      const { upload, isNew } = await uploads.put(ref, { bytes, pieces: piecesOf(req) })
      return { status: isNew ? 201 : 200, body: recordOf(upload) }
    },
  }),
  route("GET /uploads/{sha256}", {
    id: "getUpload",
    summary: "Get the size of an upload, or learn that the project has none with this hash.",
    role: "viewer",
    path: { sha256: HASH },
    responses: { 200: json(UPLOAD, "The upload. No operation returns its content.") },
    handle: async ({ path: { sha256 }, principal }, { uploads }) => {
      const upload = await uploads.find({ namespace: principal.project.namespace, sha256 })
      if (upload === undefined) throw notFound(`The project has no upload ${sha256}.`)
      return { body: recordOf(upload) }
    },
  }),
]

function recordOf({ sha256, bytes, usedAt }: StoredUpload): UploadRecord {
  return { sha256, bytes, used_at: usedAt.toISOString() }
}

/** Returns the size that the request announces. @throws Problem 415, 400 */
function announcedBytes(req: Request): number {
  const [type = ""] = (req.get("Content-Type") ?? "").toLowerCase().split(";")
  const encoding = req.get("Content-Encoding") ?? "identity"
  if (type.trim() !== MEDIA_TYPE || encoding !== "identity") {
    const detail = `Send the archive as ${MEDIA_TYPE}, without a Content-Encoding.`
    const headers = { "Accept-Post": MEDIA_TYPE }
    throw new Problem({ type: "unsupported-media-type", status: 415, detail, headers })
  }
  const length = req.get("Content-Length")
  if (length === undefined) throw badRequest("The upload has no Content-Length: send its size.")
  return Number(length)
}

/** @throws Problem 400 if the body breaks off */
async function* piecesOf(req: Request): AsyncGenerator<Uint8Array, void, void> {
  try {
    // The stream stays open when the loop ends early, because the response uses the same connection.
    yield* req.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>
  } catch (error) {
    if (req.errored === error) throw badRequest("The upload did not arrive completely.")
    throw error
  }
}
