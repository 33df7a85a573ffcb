import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs, promisify } from "node:util"
import { gzipSync } from "node:zlib"
import { isReplacedBy } from "../../scripts/version.ts"
import { call, restOf, shellJob, untilStatus } from "../e2e/rest.ts"
import { Program } from "../harness/program-process.ts"
import { GATE, type RecordedVersion, recordedFolder } from "./recorded.ts"

/**
 * Records what this version leaves behind, for the tests of later versions: the data directory of `npm start`, with objects
 * of every kind that REST makes, and what REST says of them. Also its kinds, rights and chart. `npm run record` writes
 * test/upgrade/<version>/, in place of those of other candidates of the version. The directory lacks certificates, which
 * each start creates, and the logs of the control plane.
 */

const ROOT = join(import.meta.dirname, "..", "..")

/** Parts of the data directory that each start writes again. */
const LEFT_OUT = [
  "berth.log",
  "console",
  "control-plane/logs",
  "control-plane/run",
  "control-plane/pki",
  "control-plane/lock*",
]

const { values } = parseArgs({
  options: { port: { type: "string", default: "24100" }, "assets-dir": { type: "string" } },
})
const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
const folder = await mkdtemp(join(tmpdir(), "berth-record-"))
const dataDir = join(folder, "berth")
const assets = values["assets-dir"] === undefined ? [] : ["--assets-dir", values["assets-dir"]]
const main = [join(ROOT, "scripts", "with-node.mjs"), join(ROOT, "dev", "main.ts"), "serve"]
const program = new Program("start", [
  ...main,
  "--data-dir",
  dataDir,
  "--runtime",
  "process",
  "--port",
  values.port,
  ...assets,
])
try {
  await program.printed(/Berth is up at/)
  const recorded = await record()
  program.send("SIGTERM")
  await program.ended
  for (const name of await readdir(import.meta.dirname))
    if (isReplacedBy(name, version)) await rm(recordedFolder(name), { recursive: true })
  const target = recordedFolder(version)
  await mkdir(target, { recursive: true })
  const excluded = LEFT_OUT.map((path) => `--exclude=berth/${path}`)
  const archive = join(target, "data.tar.xz")
  await promisify(execFile)("tar", ["-cJf", archive, ...excluded, "-C", folder, "berth"])
  await writeFile(join(target, "records.json"), `${JSON.stringify(recorded, null, 2)}\n`)
  const manifests = join(target, "manifests.tar.xz")
  await promisify(execFile)("tar", ["-cJf", manifests, "-C", ROOT, "crds", "manifests/base", "charts/berth"])
  for (const path of [archive, manifests]) console.info(`${path}: ${(await stat(path)).size} bytes`)
} finally {
  if (program.running) await program.stop()
  await rm(GATE, { force: true })
  await rm(folder, { recursive: true, force: true })
}

async function record(): Promise<RecordedVersion> {
  const post = (path: string, body: object | string) =>
    call(dataDir, "POST", path, typeof body === "string" ? body : JSON.stringify(body))
  const made = await post("/keys", { name: "recorded", role: "developer" })
  const { value: key } = JSON.parse(made) as { value: string }
  const work = gzipSync(await tarOf("words.txt", "from the working directory\n"))
  const sha256 = createHash("sha256").update(work).digest("hex")
  await restOf(dataDir, "PUT", `/uploads/${sha256}`, { body: work, type: "application/gzip" })
  const ended = shellJob("ended", "echo hello from this version")
  const idempotencyKey = "recorded"
  await restOf(dataDir, "POST", "/jobs", {
    body: ended,
    headers: { "X-Service-Api-Key": key, "Idempotency-Key": idempotencyKey },
  })
  await post("/jobs", shellJob("failed", "echo this fails; exit 3"))
  await post("/jobs", { ...JSON.parse(shellJob("worked", "cat words.txt")), workdir: { sha256 } })
  const running = shellJob("running", `until [ -e ${GATE} ]; do sleep 0.1; done; echo over`)
  await post("/jobs", { ...JSON.parse(running), tags: ["up"], labels: { team: "a" }, timeoutSeconds: 86_400 })
  for (const name of ["queued", "cancelled"]) await post("/jobs", { name, image: "alpine", cloud: ["aws"] })
  await post("/jobs/cancelled/cancel", "{}")
  const definition = JSON.parse(shellJob("unused", "echo index")) as Record<string, unknown>
  delete definition["name"]
  await post("/arrays", { name: "sweep", size: 3, parallelism: 3, job_definition: definition })
  await post("/cronjobs", { name: "minutely", cron_spec: "* * * * *", is_active: false, job_definition: definition })
  await post("/cronjobs/minutely/run", "{}")
  const credentials = {
    access_key_id: "AKIAIOSFODNN7EXAMPLE",
    secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
  }
  await post("/connections", { name: "acme-aws", type: "aws", ...credentials })
  await post("/webhooks", {
    name: "ends",
    url: "https://hooks.example.com/berth",
    events: ["job.failed"],
    is_active: false,
  })
  await Promise.all([
    ...["ended", "worked"].map((name) => untilStatus(dataDir, name, "succeeded")),
    untilStatus(dataDir, "failed", "failed"),
    untilStatus(dataDir, "cancelled", "cancelled"),
    untilStatus(dataDir, "running", "running"),
    untilStatus(dataDir, "sweep", "succeeded", { collection: "arrays" }),
  ])
  const paths = [
    ...["ended", "failed", "worked", "cancelled"].map((name) => `/jobs/${name}`),
    ...["/arrays/sweep", "/cronjobs/minutely", "/connections/acme-aws", "/webhooks/ends", "/keys/recorded"],
  ]
  const records = await Promise.all(
    paths.map(async (path) => [path, JSON.parse(await call(dataDir, "GET", path)) as object]),
  )
  return { version, key, idempotencyKey, submission: JSON.parse(ended) as object, records: Object.fromEntries(records) }
}

/** Returns a tar archive with one file. */
async function tarOf(name: string, text: string): Promise<Buffer> {
  const source = await mkdtemp(join(tmpdir(), "berth-work-"))
  try {
    await writeFile(join(source, name), text)
    const { stdout } = await promisify(execFile)("tar", ["-c", "-C", source, name], { encoding: "buffer" })
    return stdout
  } finally {
    await rm(source, { recursive: true })
  }
}
