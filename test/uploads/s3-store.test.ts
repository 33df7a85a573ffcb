import { randomBytes } from "node:crypto"
import { CreateBucketCommand, ListObjectsV2Command, S3Client } from "@aws-sdk/client-s3"
import { afterAll, beforeAll, expect } from "vitest"
import { S3LogStore } from "../../src/api/logs/s3-store.ts"
import { S3UploadStore } from "../../src/api/uploads/s3-store.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { sha256Of, uploadStoreSuite } from "./conformance.ts"

const { describe, it } = needing(missingTool("moto"))

let moto: Moto
let client: S3Client

beforeAll(async () => {
  moto = await startMoto()
  const credentials = { accessKeyId: "key", secretAccessKey: "secret" }
  const checksums = {
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  } as const
  client = new S3Client({ endpoint: moto.url, region: "us-east-1", forcePathStyle: true, credentials, ...checksums })
})
afterAll(async () => {
  client.destroy()
  await moto.stop()
})

async function newBucket(): Promise<string> {
  const bucket = `uploads-${randomBytes(6).toString("hex")}`
  await client.send(new CreateBucketCommand({ Bucket: bucket }))
  return bucket
}

describe("uploads in S3", () => {
  // moto answers 500 to some of several concurrent uploads of one object. S3 takes them all.
  uploadStoreSuite(
    async () => {
      const bucket = await newBucket()
      return {
        store: new S3UploadStore({ client, bucket, prefix: "berth/logs/uploads/" }),
        entries: async () => {
          const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket: bucket }))
          return Contents.map(({ Key = "" }) => Key)
        },
        close: async () => undefined,
      }
    },
    { atOnce: 1 },
  )

  it("are no logs for the store of logs, whose orphans are removed", async () => {
    const bucket = await newBucket()
    const data = Buffer.from("x")
    async function* pieces() {
      yield data
    }
    const store = new S3UploadStore({ client, bucket, prefix: "logs/uploads/" })
    await store.write({ namespace: "a", sha256: sha256Of(data) }, { bytes: 1, pieces: pieces() })
    const logs: unknown[] = []
    for await (const log of new S3LogStore({ client, bucket, prefix: "logs/" }).list()) logs.push(log)
    expect(logs).toEqual([])
  })
})
