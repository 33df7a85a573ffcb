import { randomBytes } from "node:crypto"
import { CreateBucketCommand, ListObjectsV2Command, S3Client } from "@aws-sdk/client-s3"
import { afterAll, beforeAll, expect } from "vitest"
import { S3LogStore } from "../../src/api/logs/s3-store.ts"
import type { LogStore } from "../../src/api/logs/store.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const { describe, it } = needing(missingTool("moto"))

const KIB = 1024

/** Size of the log and of its pieces: pieces that are merged, and then some that are left out at the cap. */
const LOG_BYTES = 9000 * KIB
const PIECE_BYTES = 900 * KIB
const CAP_BYTES = 6000 * KIB

/** Fault of one request to the bucket. `isSent`: the bucket gets it. `kills`: another façade continues after it. */
interface Fault {
  isSent: boolean
  kills: boolean
}

const FAULTS: [string, Fault][] = [
  ["refused", { isSent: false, kills: false }],
  ["answer lost", { isSent: true, kills: false }],
  ["killed before it", { isSent: false, kills: true }],
  ["killed after it", { isSent: true, kills: true }],
]

let moto: Moto
const credentials = { accessKeyId: "key", secretAccessKey: "secret" }
const job = { namespace: "project-a", uid: "a" }

/** Lines with the numbers from 0 on, whose place in the log is known from their text. */
const LOG = Buffer.from(
  Array.from({ length: LOG_BYTES / 16 }, (_, index) => `${String(index).padStart(15, "0")}\n`).join(""),
)

beforeAll(async () => {
  moto = await startMoto()
})
afterAll(() => moto.stop())

function newClient(): S3Client {
  return new S3Client({ endpoint: moto.url, region: "us-east-1", forcePathStyle: true, credentials, maxAttempts: 1 })
}

/** Client whose n-th request has a fault. After a kill it sends nothing more. */
function faultyClient({ isSent, kills }: Fault, at: number) {
  const client = newClient()
  const seen = { requests: 0, isHit: false, isDead: false }
  client.middlewareStack.add(
    (next) => async (args) => {
      if (seen.isDead) throw new Error("killed")
      if (++seen.requests !== at) return await next(args)
      Object.assign(seen, { isHit: true, isDead: kills })
      // A body that is not read would fail later, when its connection ends.
      if (isSent) await bodyOf((await next(args)).output)
      throw new Error("the request has failed")
    },
    { step: "finalizeRequest", name: "fault" },
  )
  return { client, seen }
}

async function bodyOf(output: object): Promise<void> {
  const { Body } = output as { Body?: { transformToByteArray(): Promise<Uint8Array> } }
  await Body?.transformToByteArray()
}

async function newBucket(client: S3Client): Promise<string> {
  const bucket = `logs-${randomBytes(6).toString("hex")}`
  await client.send(new CreateBucketCommand({ Bucket: bucket }))
  return bucket
}

/** Stores the log like an agent does, which repeats a piece until it is answered. Returns false if the fault had no request. */
async function ship(bucket: string, fault: Fault, at: number, other: S3Client): Promise<boolean> {
  const { client, seen } = faultyClient(fault, at)
  const open = (through: S3Client) => new S3LogStore({ client: through, bucket, capBytes: CAP_BYTES })
  let store = open(client)
  const log = { job, launch: 1 }
  const failures: unknown[] = []
  const append = async (offset: number, data: Buffer): Promise<number> => {
    for (;;) {
      try {
        return (await store.append(log, offset, data)).length
      } catch (error) {
        failures.push(error)
        if (failures.length > 2) throw error
        if (seen.isDead) store = open(other)
      }
    }
  }
  for (let offset = 0; offset < LOG.byteLength; ) {
    offset = await append(offset, LOG.subarray(offset, offset + PIECE_BYTES))
  }
  // Waits for a merge that is pending, and if that was killed, lets another façade continue.
  await append(LOG.byteLength, Buffer.alloc(0))
  client.destroy()
  return seen.isHit
}

async function text(store: LogStore): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of store.read(job)) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

/** Returns the log without the bytes that lines in the stored one report as left out. There must be one such line. */
function expected(stored: string): string {
  const gaps = [...stored.matchAll(/--- (\d+) bytes of the log are left out here: .* ---\n/g)]
  if (gaps.length !== 1) return `${gaps.length} gaps`
  const [{ index, 0: line, 1: bytes }] = gaps as [RegExpExecArray]
  return `${LOG.subarray(0, index)}${line}${LOG.subarray(index + Number(bytes))}`
}

describe("a log in S3 while a request of its façade fails, or the façade is killed at it", () => {
  it.each(FAULTS)(
    "keeps each byte once, in order, with one line for what is left out: %s, at each request",
    async (name, fault) => {
      const other = newClient()
      let points = 0
      for (let isHit = true; isHit; points++) {
        const at = points + 1
        const bucket = await newBucket(other)
        isHit = await ship(bucket, fault, at, other)
        const stored = await text(new S3LogStore({ client: other, bucket, capBytes: CAP_BYTES }))
        const point = `${name} at request ${at}`
        expect(stored === expected(stored), point).toBe(true)
        const { Contents = [] } = await other.send(new ListObjectsV2Command({ Bucket: bucket }))
        const bytes = Contents.reduce((sum, { Size = 0 }) => sum + Size, 0)
        // A merge whose deletions failed leaves its bytes twice.
        expect(bytes, point).toBeLessThanOrEqual(CAP_BYTES + 5 * PIECE_BYTES)
      }
      expect(points).toBeGreaterThan(20)
      other.destroy()
    },
  )
})
