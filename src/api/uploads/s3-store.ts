import { Readable } from "node:stream"
import {
  CopyObjectCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  NotFound,
  PutObjectCommand,
  paginateListObjectsV2,
  type S3Client,
} from "@aws-sdk/client-s3"
import {
  nameOfUpload,
  prefixOfUploads,
  type StoredUpload,
  type UploadContent,
  type UploadRef,
  type UploadStore,
  uploadOfName,
  verified,
} from "./store.ts"

const CONTENT_TYPE = "application/gzip"

export interface S3UploadStoreOptions {
  client: S3Client
  bucket: string
  /** Prefix of all keys, with a slash at its end. */
  prefix: string
}

/**
 * Store of uploads in S3, or any store with its API, for any number of façade replicas. S3 stores an object when it has
 * all of its bytes, and the last ones are sent only after the check of the hash.
 */
export class S3UploadStore implements UploadStore {
  readonly #options: S3UploadStoreOptions

  constructor(options: S3UploadStoreOptions) {
    this.#options = options
  }

  async write(ref: UploadRef, content: UploadContent): Promise<void> {
    const { client } = this.#options
    const Body = Readable.from(verified(ref, content), { objectMode: false })
    // The SDK does not notice that its body ends with an error.
    const failed = new AbortController()
    Body.once("error", () => failed.abort())
    const put = { ...this.#at(ref), Body, ContentLength: content.bytes, ContentType: CONTENT_TYPE }
    try {
      await client.send(new PutObjectCommand(put), { abortSignal: failed.signal })
    } catch (error) {
      throw Body.errored ?? error
    } finally {
      Body.destroy()
    }
  }

  async find(ref: UploadRef): Promise<StoredUpload | undefined> {
    try {
      const found = await this.#options.client.send(new HeadObjectCommand(this.#at(ref)))
      return { ...ref, bytes: found.ContentLength ?? 0, usedAt: found.LastModified ?? new Date() }
    } catch (error) {
      if (error instanceof NotFound) return undefined
      throw error
    }
  }

  async *read(ref: UploadRef, start: number): AsyncGenerator<Uint8Array, void, void> {
    const range = start === 0 ? {} : { Range: `bytes=${start}-` }
    const { Body } = await this.#options.client.send(new GetObjectCommand({ ...this.#at(ref), ...range }))
    yield* Body as Readable
  }

  /** Copies the object onto itself, because S3 has no other way to set its time. */
  async touch(ref: UploadRef): Promise<boolean> {
    const at = this.#at(ref)
    const CopySource = `${at.Bucket}/${encodeURIComponent(at.Key)}`
    const same = { ...at, CopySource, MetadataDirective: "REPLACE", ContentType: CONTENT_TYPE } as const
    try {
      await this.#options.client.send(new CopyObjectCommand(same))
      return true
    } catch (error) {
      if (error instanceof Error && error.name === "NoSuchKey") return false
      throw error
    }
  }

  /** S3 can't make a deletion depend on an object's time. So a use between the two requests is not seen. */
  async removeUnused(ref: UploadRef, since: Date): Promise<boolean> {
    const found = await this.find(ref)
    if (found === undefined || found.usedAt >= since) return false
    await this.#options.client.send(new DeleteObjectCommand(this.#at(ref)))
    return true
  }

  async *list(namespace?: string): AsyncGenerator<StoredUpload, void, void> {
    const { client, bucket: Bucket, prefix } = this.#options
    const Prefix = namespace === undefined ? prefix : prefix + prefixOfUploads(namespace)
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix })) {
      for (const { Key = "", Size: bytes = 0, LastModified: usedAt = new Date() } of Contents) {
        const ref = uploadOfName(Key.slice(prefix.length))
        if (ref !== undefined) yield { ...ref, bytes, usedAt }
      }
    }
  }

  /** S3 keeps nothing of an upload that is not complete. */
  removeUnfinished(): Promise<void> {
    return Promise.resolve()
  }

  #at(ref: UploadRef): { Bucket: string; Key: string } {
    return { Bucket: this.#options.bucket, Key: `${this.#options.prefix}${nameOfUpload(ref)}` }
  }
}
