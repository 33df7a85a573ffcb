import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import { chmod, mkdir, mkdtemp, open, rename, rm } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { EnvHttpProxyAgent, fetch } from "undici"
import { progressOf } from "../bootstrap/progress.mjs"
import { KUBERNETES_ORIGIN } from "../bootstrap/releases.mjs"
import {
  ETCD_VERSION,
  KUBERNETES_VERSION,
  type Platform,
  type ProgramName,
  type Progress,
  WORKSHOP_PREFIX,
} from "./programs.ts"

const run = promisify(execFile)

const CONNECT_TIMEOUT_MS = 5_000
const IDLE_TIMEOUT_MS = 30_000
const PROGRESS_INTERVAL_MS = 1_000
const MIB = 1024 * 1024

/** The envtest release nearest to KUBERNETES_VERSION. It has servers for darwin, which dl.k8s.io does not have. */
const ENVTEST_VERSION = "v1.35.0"

/** Hosts of the official releases. A mirror with the same paths works too. */
export interface Origins {
  readonly kubernetes: string
  readonly github: string
  readonly githubRaw: string
}

/** The projects' own hosts. */
export const OFFICIAL_ORIGINS: Origins = {
  kubernetes: KUBERNETES_ORIGIN,
  github: "https://github.com",
  githubRaw: "https://raw.githubusercontent.com",
}

/** One published file, its checksum document, and the program's place in the file. */
export interface Release {
  readonly url: string
  readonly checksum: { readonly url: string; readonly algorithm: "sha256" | "sha512" }
  /** The program's path in the tar.gz or zip; absent if the file is the program. */
  readonly member?: string
}

/**
 * Returns the official release of a program; undefined if its project publishes none for that platform. Sources:
 * https://kubernetes.io/releases/download, https://github.com/etcd-io/etcd/releases and
 * https://github.com/kubernetes-sigs/controller-tools (envtest-releases.yaml).
 */
export function officialRelease(name: ProgramName, platform: Platform, origins: Origins): Release | undefined {
  const { os, arch } = platform
  if (name === "etcd") {
    const base = `${origins.github}/etcd-io/etcd/releases/download/${ETCD_VERSION}`
    const directory = `etcd-${ETCD_VERSION}-${os}-${arch}`
    return {
      url: `${base}/${directory}.${os === "linux" ? "tar.gz" : "zip"}`,
      checksum: { url: `${base}/SHA256SUMS`, algorithm: "sha256" },
      member: `${directory}/etcd`,
    }
  }
  if (os === "linux" || name === "kubectl") {
    const url = `${origins.kubernetes}/release/${KUBERNETES_VERSION}/bin/${os}/${arch}/${name}`
    return { url, checksum: { url: `${url}.sha256`, algorithm: "sha256" } }
  }
  if (name === "kube-controller-manager") return undefined
  const project = "kubernetes-sigs/controller-tools"
  const archive = `envtest-${ENVTEST_VERSION}-${os}-${arch}.tar.gz`
  return {
    url: `${origins.github}/${project}/releases/download/envtest-${ENVTEST_VERSION}/${archive}`,
    checksum: { url: `${origins.githubRaw}/${project}/HEAD/envtest-releases.yaml`, algorithm: "sha512" },
    member: `controller-tools/envtest/${name}`,
  }
}

/**
 * Finds the digest of `file` in a published checksum document. Formats: a bare digest (NAME.sha256), lines of "DIGEST
 * FILE" (SHA256SUMS), or envtest-releases.yaml (a `FILE:` key followed by `hash: DIGEST`).
 */
export function findDigest(document: string, file: string, algorithm: "sha256" | "sha512"): string | undefined {
  const digest = algorithm === "sha256" ? /^[0-9a-f]{64}$/ : /^[0-9a-f]{128}$/
  if (digest.test(document.trim())) return document.trim()
  const lines = document.split("\n").map((line) => line.trim().split(/\s+/))
  const found = lines.flatMap(([first = "", second], index) => {
    if (second === file || second === `*${file}`) return [first]
    return first === `${file}:` ? [lines[index + 1]?.[1] ?? ""] : []
  })
  return found.find((value) => digest.test(value))
}

export interface DownloadOptions {
  /** Folder for the program. */
  readonly directory: string
  readonly progress: (progress: Progress) => void
  /** Aborts the download. */
  readonly signal: AbortSignal | undefined
}

/**
 * Downloads an official release, checks it against its published digest and moves the executable program to
 * `directory`/`name`. It moves by one rename, so no partial or unchecked file is ever at that path. Uses the proxies of
 * the usual environment variables. Throws an Error with the reason in one line.
 */
export async function download(name: ProgramName, release: Release, options: DownloadOptions): Promise<void> {
  const { directory, progress, signal } = options
  await mkdir(directory, { recursive: true })
  const workshop = await mkdtemp(join(directory, WORKSHOP_PREFIX))
  const dispatcher = new EnvHttpProxyAgent({
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: IDLE_TIMEOUT_MS,
    bodyTimeout: IDLE_TIMEOUT_MS,
  })
  const get = async (url: string) => {
    const response = await fetch(url, { dispatcher, signal: signal ?? null }).catch((error: unknown) => {
      throw new Error(`${url}: ${reasonOf(error)}`, { cause: error })
    })
    if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`)
    return response
  }
  try {
    const file = release.url.slice(release.url.lastIndexOf("/") + 1)
    const { url, algorithm } = release.checksum
    const expected = findDigest(await (await get(url)).text(), file, algorithm)
    if (expected === undefined) throw new Error(`${url} has no ${algorithm} digest of ${file}`)
    const path = join(workshop, file)
    const what = `downloading ${file}`
    const actual = await save(await get(release.url), path, algorithm, (share, seconds) =>
      progress(progressOf(what, share, seconds)),
    )
    if (actual !== expected) throw new Error(`${release.url}: its ${algorithm} is ${actual}, published is ${expected}`)
    const program = release.member === undefined ? path : await unpack(path, release.member, workshop)
    await chmod(program, 0o755)
    await rename(program, join(directory, name))
  } finally {
    await rm(workshop, { recursive: true, force: true })
    await dispatcher.destroy()
  }
}

type Answer = Awaited<ReturnType<typeof fetch>>

/**
 * Streams the body to `path`, and returns its digest in hex.
 * @param received called about once a second with the received share of the body, and the seconds since its start
 */
async function save(
  answer: Answer,
  path: string,
  algorithm: string,
  received: (share: number, seconds: number) => void,
): Promise<string> {
  const total = Number(answer.headers.get("content-length") ?? 0)
  const hash = createHash(algorithm)
  const file = await open(path, "wx")
  const began = performance.now()
  let bytes = 0
  let shown = began
  try {
    for await (const chunk of answer.body ?? []) {
      hash.update(chunk)
      await file.write(chunk)
      bytes += chunk.byteLength
      const now = performance.now()
      if (total === 0 || now - shown < PROGRESS_INTERVAL_MS) continue
      shown = now
      received(bytes / total, (now - began) / 1000)
    }
  } catch (error) {
    const mebibytes = `${(bytes / MIB).toFixed(1)} MiB`
    throw new Error(`${answer.url}: ${reasonOf(error)} after ${mebibytes}`, { cause: error })
  } finally {
    await file.close()
  }
  received(1, (performance.now() - began) / 1000)
  return hash.digest("hex")
}

/** Extracts one member of a checked archive with the system's tar. The bsdtar of darwin reads zip too. */
async function unpack(archive: string, member: string, directory: string): Promise<string> {
  await run("tar", ["-xf", archive, "-C", directory, member])
  return join(directory, member)
}

/** fetch reports only "fetch failed"; the reason is in its causes. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error.cause !== undefined) return reasonOf(error.cause)
  const { code } = error as NodeJS.ErrnoException
  return error.message || code || error.name
}
