import { execFile } from "node:child_process"
import { constants } from "node:fs"
import { access, readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { promisify } from "node:util"
import { buildWithGo } from "../bootstrap/go-build.mjs"
import { inQuarters } from "../bootstrap/progress.mjs"
import { programsDirectory } from "../bootstrap/releases.mjs"
import { type DownloadOptions, download, OFFICIAL_ORIGINS, type Origins, officialRelease } from "./download.ts"
import { type Lock, LockHeldError, takeLock } from "./lock.ts"
import {
  type Binaries,
  currentPlatform,
  KUBERNETES_VERSION,
  type ProgramName,
  type Progress,
  type Report,
  SERVERS,
  WORKSHOP_PREFIX,
} from "./programs.ts"

const run = promisify(execFile)

const LOCK_POLL_MS = 1_000
const LOCK_REPORT_EVERY = 10

/** Places to search for the programs. */
export interface SearchOptions {
  /** A directory that holds them (KUBEBUILDER_ASSETS). If given, nothing else is searched. */
  readonly assetsDir?: string | undefined
  /** Berth's cache directory (`${XDG_CACHE_HOME:-~/.cache}/berth`), for missing programs. */
  readonly cacheDir: string
  /** Receives lines that name each slow step and its reason. */
  readonly report: Report
  /** Receives the progress of downloads and builds, about once a second. Default: a few lines to `report`. */
  readonly progress?: (progress: Progress) => void
  /** Aborts the search. The next one continues with everything that was downloaded or compiled. */
  readonly signal?: AbortSignal
  /** Hosts of the official releases. Default: the projects' own. */
  readonly origins?: Origins
}

/**
 * Finds the servers of a control plane. Searches `assetsDir` if given, else the cache. Otherwise downloads the official
 * releases with their checksums, or builds them with the Go toolchain. Both fill the cache, and take some time; a lock
 * makes a second process wait instead of doing the same.
 *
 * Throws an Error that names each attempt, why it failed and what to do.
 */
export async function findBinaries(options: SearchOptions): Promise<Binaries> {
  const directory = options.assetsDir ?? (await fillCache(SERVERS, options))
  const missing = await missingIn(directory, SERVERS)
  if (missing.length > 0) {
    throw new Error(
      `KUBEBUILDER_ASSETS=${directory} lacks ${missing.join(", ")} (as executable files). ` +
        "Put them there, or unset it: then they are downloaded or built.",
    )
  }
  return {
    etcd: join(directory, "etcd"),
    "kube-apiserver": join(directory, "kube-apiserver"),
    "kube-controller-manager": join(directory, "kube-controller-manager"),
  }
}

/**
 * Finds kubectl: the one in PATH if it runs, else in `assetsDir`, else as findBinaries does. Returns the command to
 * execute, a path or plain "kubectl". Throws as findBinaries does.
 */
export async function findKubectl(options: SearchOptions): Promise<string> {
  if (await runs("kubectl", ["version", "--client"])) return "kubectl"
  const { assetsDir } = options
  if (assetsDir !== undefined && (await missingIn(assetsDir, ["kubectl"])).length === 0)
    return join(assetsDir, "kubectl")
  return join(await fillCache(["kubectl"], options), "kubectl")
}

/** Ensures that the cache holds the programs, and returns their directory. */
async function fillCache(names: readonly ProgramName[], options: SearchOptions): Promise<string> {
  const directory = programsDirectory(options.cacheDir)
  if ((await missingIn(directory, names)).length === 0) return directory
  const lock = await waitForLock(join(directory, ".lock"), options)
  try {
    await removeHalfMade(directory)
    await obtain(await missingIn(directory, names), directory, options)
  } finally {
    lock.release()
  }
  return directory
}

/** Removes the files of a killed download or build. The lock is held, so no other process works here. */
async function removeHalfMade(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!name.startsWith(WORKSHOP_PREFIX)) continue
    await rm(join(directory, name), { recursive: true, force: true })
  }
}

async function obtain(names: readonly ProgramName[], directory: string, options: SearchOptions): Promise<void> {
  const { report, progress = inQuarters(report), signal, origins = OFFICIAL_ORIGINS } = options
  const missing: ProgramName[] = []
  const failures: string[] = []
  for (const name of names) {
    const failure = await tryDownload(name, origins, { directory, progress, signal })
    signal?.throwIfAborted()
    if (failure === undefined) continue
    missing.push(name)
    failures.push(failure)
  }
  if (missing.length === 0) return
  report(`no download of ${missing.join(", ")} (${failures[0]}): building from source with Go, only this once`)
  try {
    await buildWithGo(missing, directory, { progress, signal })
  } catch (error) {
    signal?.throwIfAborted()
    const built = error instanceof Error ? error.message : String(error)
    throw new Error(
      [
        `no way was found to get ${missing.join(", ")} (Kubernetes ${KUBERNETES_VERSION}):`,
        "- KUBEBUILDER_ASSETS is not set",
        `- ${directory} does not hold them`,
        ...failures.map((failure) => `- download: ${failure}`),
        `- build with Go: ${built}`,
        `Put ${SERVERS.join(", ")} into a directory and set KUBEBUILDER_ASSETS to it, or give this machine access to ` +
          "one of the addresses above, or install Go 1.25 or newer (https://go.dev/dl).",
      ].join("\n"),
      { cause: error },
    )
  }
}

/** Returns why the program could not be downloaded; undefined if it was. */
async function tryDownload(name: ProgramName, origins: Origins, options: DownloadOptions): Promise<string | undefined> {
  const platform = currentPlatform()
  const release = officialRelease(name, platform, origins)
  if (!release) return `${name} is not published for ${platform.os}/${platform.arch}`
  try {
    await download(name, release, options)
    return undefined
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

async function waitForLock(path: string, { report, signal }: SearchOptions): Promise<Lock> {
  for (let tries = 0; ; tries++) {
    try {
      return await takeLock(path)
    } catch (error) {
      if (!(error instanceof LockHeldError)) throw error
      if (tries % LOCK_REPORT_EVERY === 0) {
        report(`waiting for process ${error.holder}, which is fetching the Kubernetes programs`)
      }
      await delay(LOCK_POLL_MS, undefined, { signal })
    }
  }
}

async function missingIn(directory: string, names: readonly ProgramName[]): Promise<ProgramName[]> {
  const checks = names.map(async (name) => ({ name, there: await isExecutable(join(directory, name)) }))
  return (await Promise.all(checks)).filter(({ there }) => !there).map(({ name }) => name)
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

async function runs(command: string, args: readonly string[]): Promise<boolean> {
  try {
    await run(command, [...args])
    return true
  } catch {
    return false
  }
}
