import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { S3LogStore } from "../../src/api/logs/s3-store.ts"
import { FileObjects } from "../../src/api/usage/objects.ts"
import { S3Objects } from "../../src/api/usage/s3-objects.ts"
import { UsageStore } from "../../src/api/usage/store.ts"
import type { UsagePoint } from "../../src/core/apis/usage.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { noDisk, smallDisk } from "../small-disk.ts"

const job = { namespace: "team-a", uid: "7d4c0f4e-6c1a-4df0-9f43-2f1a3d1c9b52" }
const other = { namespace: "team-b", uid: "0f5a3c1e-6c1a-4df0-9f43-2f1a3d1c9b52" }

function minutes(from: number, until: number): UsagePoint[] {
  return Array.from({ length: until - from }, (_, index) => ({
    time: 1_767_225_600_000 + (from + index) * 60_000,
    seconds: 60,
    cpu: 0.5,
    memoryMib: 100 + index,
  }))
}

async function all<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const found: Item[] = []
  for await (const item of items) found.push(item)
  return found
}

async function jobsIn(store: UsageStore): Promise<unknown[]> {
  return await all(store.list())
}

/** Checks a store of usage. */
async function check(store: UsageStore): Promise<void> {
  expect(await store.read(job)).toEqual([])
  await store.remove(job)
  // At the same time, and one piece twice.
  const pieces = [minutes(0, 30), minutes(0, 30), minutes(10, 60)]
  await Promise.all([...pieces.map((points) => store.add(job, 1, points)), store.add(job, 2, minutes(70, 71))])
  await store.add(other, 1, minutes(0, 1))
  const read = await store.read(job)
  expect(read.map(({ launch, time }) => [launch, time])).toEqual([
    ...minutes(0, 60).map(({ time }) => [1, time]),
    ...minutes(70, 71).map(({ time }) => [2, time]),
  ])
  expect(await jobsIn(store)).toEqual(expect.arrayContaining([job, other]))
  await store.remove(job)
  expect(await store.read(job)).toEqual([])
  expect(await jobsIn(store)).toEqual([other])
  expect(() => store.read({ ...job, namespace: "../etc" })).toThrow(TypeError)
}

describe("usage in a folder", () => {
  it("is stored once, read and removed", async () => {
    const folder = await mkdtemp(join(tmpdir(), "berth-usage-"))
    await check(new UsageStore(new FileObjects(join(folder, "usage"))))
    await rm(folder, { recursive: true })
  })

  it.skipIf(noDisk !== "")(`keeps what it has when the disk is full${noDisk}`, async () => {
    const disk = await smallDisk(1)
    try {
      const store = new UsageStore(new FileObjects(join(disk.path, "usage")))
      await store.add(job, 1, minutes(0, 30))
      await disk.fill()
      await expect(store.add(job, 1, minutes(0, 2000))).rejects.toThrow(/ENOSPC/)
      expect(await store.read(job)).toHaveLength(30)
      await disk.empty()
      await store.add(job, 1, minutes(0, 2000))
      expect(await store.read(job)).toHaveLength(2000)
    } finally {
      await disk.remove()
    }
  })
})

const inS3 = needing(missingTool("moto"))

inS3.describe("usage in S3", () => {
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
    await client.send(new CreateBucketCommand({ Bucket: "usage" }))
  })
  afterAll(async () => {
    client.destroy()
    await moto.stop()
  })

  inS3.it("is stored once, read and removed, and is no log", async () => {
    await check(new UsageStore(new S3Objects({ client, bucket: "usage", prefix: "berth/logs/usage/" })))
    const logs = new S3LogStore({ client, bucket: "usage", prefix: "berth/logs/" })
    expect(await all(logs.list())).toEqual([])
  })
})
