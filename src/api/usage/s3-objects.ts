import {
  DeleteObjectCommand,
  GetObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  paginateListObjectsV2,
  type S3Client,
} from "@aws-sdk/client-s3"
import type { Objects } from "./objects.ts"

export interface S3ObjectsOptions {
  client: S3Client
  bucket: string
  /** Prefix of all keys, with a slash at its end. */
  prefix: string
}

/** Objects in S3, or any store with its API, for any number of façade replicas. */
export class S3Objects implements Objects {
  readonly #options: S3ObjectsOptions

  constructor(options: S3ObjectsOptions) {
    this.#options = options
  }

  async get(name: string): Promise<Uint8Array | undefined> {
    try {
      const { Body } = await this.#options.client.send(new GetObjectCommand(this.#at(name)))
      return await Body?.transformToByteArray()
    } catch (error) {
      if (error instanceof NoSuchKey) return undefined
      throw error
    }
  }

  async put(name: string, Body: Uint8Array): Promise<void> {
    await this.#options.client.send(new PutObjectCommand({ ...this.#at(name), Body, ContentType: "application/json" }))
  }

  async remove(name: string): Promise<void> {
    await this.#options.client.send(new DeleteObjectCommand(this.#at(name)))
  }

  async *names(): AsyncGenerator<string, void, void> {
    const { client, bucket: Bucket, prefix: Prefix } = this.#options
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix })) {
      for (const { Key = "" } of Contents) yield Key.slice(Prefix.length)
    }
  }

  #at(name: string): { Bucket: string; Key: string } {
    const { bucket: Bucket, prefix } = this.#options
    return { Bucket, Key: `${prefix}${name}` }
  }
}
