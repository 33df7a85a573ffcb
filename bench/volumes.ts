import { execFile } from "node:child_process"
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { createWriteStream } from "node:fs"
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { loadavg, tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { freePort } from "../dev/controlplane/ports.ts"
import { VolumeDriver } from "../src/agent/volumes/driver.ts"
import type { Volume } from "../src/core/apis/job.ts"
import type { BucketAccess } from "../src/core/protocol/protocol.ts"
import { docker } from "../test/agent/images.ts"
import {
  buildRcloneImage,
  engineVolumes,
  missingForMounts,
  removeSharedDisk,
  sharedDisk,
} from "../test/agent/mounts.ts"
import { goProgram } from "../test/go-program.ts"
import { silentLogger } from "../test/harness/silent-logger.ts"
import { RCLONE, S3_SERVER } from "../test/rclone.ts"
import { startTied } from "../test/tied-process.ts"
import { type BenchContext, type BenchResult, compareLess, spreadOf, within } from "./result.ts"
import { type SlowNetwork, startSlowNetwork } from "./slow-network.ts"

const execute = promisify(execFile)

const ROUNDS = 3
const FILE_MIB = 1024
const SMALL_FILES = 300
const MIB = 1024 * 1024

/** A bucket in the region of a VM with 1 Gbit/s. */
const NETWORK = { roundTripMs: 20, ofConnection: 60 * MIB, ofAll: 119 * MIB }

const BUCKET = "data"
const KEY = { access_key_id: "key", secret_access_key: "secret" }

/** Seconds of one round. */
interface Round {
  copy: number
  read: number
  first: number
  second: number
  /** Requests for each small file. */
  requests: number
}

/**
 * Measures reads of a bucket through the agent's own volumes, beside `rclone copy` on the same server. The server of S3's API is on
 * this machine, behind a network with a delay and rates.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const missing = await missingForMounts()
  if (missing !== undefined) throw new Error(missing)
  const [mib = FILE_MIB] = context.sizes ?? []
  using stack = new DisposableStack()
  stack.use(await engineVolumes())
  const folder = await mkdtemp(join(tmpdir(), "berth-bench-volumes-"))
  const image = `berth-bench/rclone:${process.pid}`
  await buildRcloneImage(image)
  await fillBucket(join(folder, "buckets", BUCKET), mib)
  const port = await freePort()
  const server = await startTied(
    await goProgram(S3_SERVER),
    ["serve", "s3", "--auth-key", "key,secret", "--addr", `127.0.0.1:${port}`, join(folder, "buckets")],
    { ready: /Starting s3 server on \[(http:[^\]]+)/ },
  )
  const network = await startSlowNetwork(port, NETWORK)
  try {
    const rounds: Round[] = []
    for (let round = 1; round <= ROUNDS; round++) {
      const times = await measure({ folder, image, network })
      rounds.push(times)
      const shown = Object.entries(times).map(([name, value]) => `${name} ${value.toFixed(2)}`)
      context.report(`round ${round} of ${ROUNDS}: ${shown.join(", ")}; load ${loadavg()[0]?.toFixed(1)}`)
    }
    const of = (name: keyof Round) => rounds.map((round) => round[name])
    return {
      name: "volumes",
      rows: [
        compareLess(`first read of ${mib} MiB, and rclone copy; s`, of("read"), of("copy"), 0.6),
        compareLess(`first read of ${mib} MiB with a cache, and rclone copy; s`, of("first"), of("copy"), 0.6),
        compareLess(`second read of ${mib} MiB with a cache, and the first; s`, of("second"), of("first"), 5),
        within(`requests for each of ${SMALL_FILES} small files`, of("requests"), 1),
      ],
      spread: Object.fromEntries(
        (Object.keys(rounds[0] ?? {}) as (keyof Round)[]).map((name) => [name, spreadOf(of(name))]),
      ),
    }
  } finally {
    await network.close()
    await server.stop()
    await docker.getImage(image).remove({ force: true, noprune: true })
    await rm(folder, { recursive: true, force: true })
  }
}

interface Setup {
  folder: string
  image: string
  network: SlowNetwork
}

async function fillBucket(bucket: string, mib: number): Promise<void> {
  await mkdir(join(bucket, "small"), { recursive: true })
  for (let file = 0; file < SMALL_FILES; file++) await writeFile(join(bucket, "small", `${file}`), randomBytes(4096))
  const large = createWriteStream(join(bucket, "large"))
  for (let written = 0; written < mib; written++) if (!large.write(randomBytes(MIB))) await once(large, "drain")
  large.end()
  await once(large, "finish")
}

async function measure(setup: Setup): Promise<Round> {
  const copy = await seconds(() => copied(setup))
  const read = await mounted(setup, {}, (folder) => seconds(() => readAll(join(folder, "large"))))
  return await mounted(setup, { cache: "reads" }, async (folder) => {
    const first = await seconds(() => readAll(join(folder, "large")))
    const second = await seconds(() => readAll(join(folder, "large")))
    setup.network.requests.length = 0
    for (const name of await readdir(join(folder, "small"))) await readFile(join(folder, "small", name))
    const requests = setup.network.requests.filter((line) => line.includes(`/${BUCKET}/small/`)).length / SMALL_FILES
    return { copy, read, first, second, requests }
  })
}

async function seconds(act: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await act()
  return (performance.now() - start) / 1000
}

async function readAll(path: string): Promise<void> {
  await execute("dd", [`if=${path}`, "of=/dev/null", "bs=1M"])
}

/** Copies the large file to this disk by rclone alone. */
async function copied({ folder, network }: Setup): Promise<void> {
  const config = join(folder, "rclone.conf")
  const lines = Object.entries(remoteAt(network.port)).map(([name, value]) => `${name} = ${value}`)
  await writeFile(config, ["[bucket]", ...lines, ""].join("\n"))
  const to = join(folder, "copied")
  await execute(await goProgram(RCLONE), ["--config", config, "copy", `bucket:${BUCKET}/large`, to])
  await rm(to, { recursive: true })
}

const remoteAt = (port: number): Record<string, string> => ({
  ...{ type: "s3", provider: "Other", endpoint: `http://127.0.0.1:${port}`, region: "us-east-1" },
  ...{ force_path_style: "true", no_check_bucket: "true", ...KEY },
})

/** Mounts the bucket as a VM's agent does, and calls `use` with the folder in which it is. */
async function mounted<Result>(
  { image, network }: Setup,
  fields: Partial<Volume>,
  use: (folder: string) => Promise<Result>,
): Promise<Result> {
  const dataDir = await sharedDisk()
  const launch = `bench-${randomBytes(4).toString("hex")}`
  const driver = new VolumeDriver({ docker, launch, labels: {}, dataDir, image, logger: silentLogger })
  const access: BucketAccess = { path: BUCKET, remote: remoteAt(network.port) }
  const volumes = { data: { bucket: BUCKET, mountPath: "/data", ...fields } }
  const order = { run: { image, volumes }, secretEnv: {}, gpus: 0, buckets: { data: access } }
  try {
    await driver.mount(order, new AbortController().signal, async () => {})
    return await use(join(dataDir, "volumes", "mnt", `berth-${launch}-data`))
  } finally {
    await driver.clear()
    await removeSharedDisk(dataDir)
  }
}
