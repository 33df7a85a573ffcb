import { execFile } from "node:child_process"
import { mkdir, rename } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { freePort } from "../src/embedded/controlplane/ports.ts"
import { cached, isCached, runTelling } from "./cached.ts"
import { startTied, type TiedProcess } from "./tied-process.ts"

const PROGRAM = "fake-gcs-server"
const MODULE = `github.com/fsouza/${PROGRAM}`
const VERSION = "v1.56.1"
const NAME = `${PROGRAM}-${VERSION}`

/** What a suite's hook must allow for the first time of all, milliseconds. */
export const FAKE_GCS_BUILD_MS = 1_200_000

/**
 * Starts a server of Google Cloud Storage's JSON API, in memory (https://github.com/fsouza/fake-gcs-server). It is built
 * by Go, once, into the cache directory. It checks no tokens and puts every bucket into US-CENTRAL1.
 */
export async function startFakeGcs(): Promise<TiedProcess> {
  const directory = await cached({ name: NAME, proof: PROGRAM, make: build })
  for (;;) {
    // Of port 0 it does not tell which one it got.
    const port = String(await freePort())
    const args = ["-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory"]
    try {
      return await startTied(join(directory, PROGRAM), args, { ready: /server started at (http:[^" ]+)/ })
    } catch (error) {
      // Somebody has taken the port in between.
      if (!String(error).includes("address already in use")) throw error
    }
  }
}

/** Why it can't be started here; undefined: it can. */
export async function fakeGcsObstacle(): Promise<string | undefined> {
  if (await isCached(NAME, PROGRAM)) return undefined
  return await promisify(execFile)("go", ["version"]).then(
    () => undefined,
    () => `${PROGRAM} needs Go`,
  )
}

async function build(directory: string): Promise<void> {
  const say = (line: string) => console.log(`${PROGRAM}: ${line}`)
  say(`building ${VERSION} with Go into ${directory}: some minutes, this once`)
  const workshop = join(directory, "making")
  await mkdir(workshop)
  const settings = [`GOBIN=${workshop}`, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false"]
  let lines = 0
  await runTelling("env", [...settings, "go", "install", "-v", `${MODULE}@${VERSION}`], () => {
    if (++lines % 100 === 0) say(`${lines} modules and packages so far`)
  })
  await rename(join(workshop, PROGRAM), join(directory, PROGRAM))
}
