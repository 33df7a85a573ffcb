import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { type AddressInfo, connect, createServer } from "node:net"
import { CreateBucketCommand, ListObjectsV2Command, S3Client } from "@aws-sdk/client-s3"
import { afterAll, beforeAll, expect, vi } from "vitest"
import { S3LogStore, type S3LogStoreOptions, s3Client } from "../../src/api/logs/s3-store.ts"
import type { LogStore, ReadOptions } from "../../src/api/logs/store.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { logStoreSuite } from "./conformance.ts"

const { describe, it } = needing(missingTool("moto"))

let moto: Moto
let client: S3Client

beforeAll(async () => {
  moto = await startMoto()
  const credentials = { accessKeyId: "key", secretAccessKey: "secret" }
  client = new S3Client({ endpoint: moto.url, region: "us-east-1", forcePathStyle: true, credentials })
})
afterAll(async () => {
  client.destroy()
  await moto.stop()
})

async function newBucket(): Promise<string> {
  const bucket = `logs-${randomBytes(6).toString("hex")}`
  await client.send(new CreateBucketCommand({ Bucket: bucket }))
  return bucket
}

async function keysIn(Bucket: string): Promise<string[]> {
  const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket }))
  return Contents.map(({ Key = "" }) => Key)
}

async function read(store: LogStore, options: ReadOptions = {}): Promise<Buffer> {
  const pieces: Uint8Array[] = []
  for await (const piece of store.read(job, options)) pieces.push(piece)
  return Buffer.concat(pieces)
}

const job = { namespace: "project-a", uid: "a" }

describe("logs in S3", () => {
  logStoreSuite(async () => {
    const bucket = await newBucket()
    return {
      open: (options) => new S3LogStore({ client, bucket, prefix: "berth/logs/", ...options }),
      entries: () => keysIn(bucket),
      close: async () => undefined,
    }
  }, 8)
})

describe("a bucket that accepts requests and answers none", () => {
  it("fails a write after a while, and then stores it and the writes that waited", async () => {
    const bucket = await newBucket()
    const { hostname, port } = new URL(moto.url)
    let isDeaf = true
    const proxy = createServer((socket) => {
      if (isDeaf) return
      const onward = connect(Number(port), hostname)
      socket.pipe(onward).pipe(socket)
    }).listen(0, "127.0.0.1")
    await once(proxy, "listening")
    vi.stubEnv("AWS_ACCESS_KEY_ID", "key")
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "secret")
    const endpoint = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
    const slow = s3Client({ endpoint, region: "us-east-1", requestSeconds: 0.1 })
    try {
      const store = new S3LogStore({ client: slow, bucket })
      const first = store.append({ job, launch: 1 }, 0, Buffer.from("first\n"))
      const waiting = first.catch(() => {
        isDeaf = false
      })
      const second = store.append({ job, launch: 1 }, 0, Buffer.from("first\nsecond\n"))
      await expect(first).rejects.toMatchObject({ name: "TimeoutError" })
      await waiting
      expect(await second).toEqual({ length: 13 })
      expect((await read(store)).toString()).toBe("first\nsecond\n")
    } finally {
      vi.unstubAllEnvs()
      slow.destroy()
      proxy.close()
    }
  })
})

describe("several replicas over one bucket", () => {
  async function replicas(more: Partial<S3LogStoreOptions> = {}) {
    const bucket = await newBucket()
    const open = () => new S3LogStore({ client, bucket, pollMs: 50, ...more })
    return { bucket, one: open(), other: open() }
  }

  it("store each byte once, whichever replica gets a piece", async () => {
    const { one, other } = await replicas()
    const data = randomBytes(5000)
    let length = 0
    for (let turn = 0; length < data.byteLength; turn++) {
      const store = turn % 3 === 0 ? other : one
      // The agent resends this piece if it missed the last response.
      const offset = Math.max(0, length - (turn % 4) * 40)
      const answer = await store.append({ job, launch: 1 }, offset, data.subarray(offset, offset + 200))
      expect(answer.length).toBeGreaterThanOrEqual(length)
      length = answer.length
    }
    expect((await read(one)).equals(data)).toBe(true)
    expect((await read(other)).equals(data)).toBe(true)
    expect((await read(other, { tail: 0 })).byteLength).toBe(0)
  })

  it("deliver pieces of one replica to followers of another", async () => {
    const { one, other } = await replicas()
    const ended = new AbortController()
    const follow = other.read(job, { follow: ended.signal })
    const first = follow.next()
    await one.append({ job, launch: 1 }, 0, Buffer.from("first\n"))
    expect(Buffer.from((await first).value ?? "").toString()).toBe("first\n")
    const second = follow.next()
    await one.append({ job, launch: 1 }, 6, Buffer.from("second\n"))
    expect(Buffer.from((await second).value ?? "").toString()).toBe("second\n")
    ended.abort()
    expect((await follow.next()).done).toBe(true)
  })

  it("merge many small objects into one, while others read", async () => {
    const failures: unknown[] = []
    const { bucket, one, other } = await replicas({ onCompactionError: (error) => failures.push(error) })
    const ended = new AbortController()
    const follower = read(other, { follow: ended.signal })
    const data = randomBytes(3000)
    for (let length = 0; length < data.byteLength; ) {
      length = (await one.append({ job, launch: 1 }, length, data.subarray(length, length + 20))).length
    }
    // The next write waits for pending merges.
    await one.append({ job, launch: 1 }, 0, Buffer.alloc(0))
    expect((await keysIn(bucket)).length).toBeLessThan(64)
    expect((await read(one)).equals(data)).toBe(true)
    ended.abort()
    expect((await follower).equals(data)).toBe(true)
    expect(failures).toEqual([])
  })

  it("keep the times of objects that are merged", async () => {
    const { bucket, one, other } = await replicas()
    const start = Date.parse("2026-11-24T10:00:00Z")
    const lines = Array.from({ length: 70 }, (_, index) => `${String(index).padStart(3, "0")}\n`)
    for (const [index, line] of lines.entries()) {
      const marks = [{ offset: index * 4, time: start + index * 500 }]
      await one.append({ job, launch: 1 }, index * 4, Buffer.from(line), marks)
    }
    await one.append({ job, launch: 1 }, 0, Buffer.alloc(0))
    expect((await keysIn(bucket)).length).toBeLessThan(10)
    const stamped = lines.map((line, index) => `${new Date(start + index * 500).toISOString()} ${line}`)
    expect((await read(other, { timestamps: true })).toString()).toBe(stamped.join(""))
    expect((await read(other)).toString()).toBe(lines.join(""))
  })
})
