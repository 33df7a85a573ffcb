import { type ChildProcessByStdio, execFile, spawn } from "node:child_process"
import { once } from "node:events"
import { access, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"
import { promisify } from "node:util"
import type { Offer } from "../src/core/apis/offer.ts"
import type { Catalogue } from "../src/market/router/catalogue.ts"
import type { Requirements } from "../src/market/router/requirements.ts"

const run = promisify(execFile)

/** Another router: a Python package, and a script next to this file that answers queries line by line. */
export interface PeerKind {
  name: string
  /** Requirement for pip: `name==version`. */
  requirement: string
  script: string
  /** Returns the query in the peer's format; undefined if the peer does not support it. */
  queryOf(question: Requirements): object | undefined
}

/** A peer's answer to one query. */
export interface PeerAnswer {
  question: Requirements
  seconds: number
  /** US dollars an hour of its choice; null if it finds nothing. */
  usd: number | null
}

/** A peer in a process of its own, with a home directory of its own. */
export class Peer {
  readonly name: string
  readonly #kind: PeerKind
  readonly #process: ChildProcessByStdio<Writable, Readable, null>
  readonly #answers: AsyncIterator<string>
  readonly #folder: string

  private constructor(kind: PeerKind, python: string, folder: string) {
    this.name = kind.name
    this.#kind = kind
    this.#folder = folder
    this.#process = spawn(python, [join(import.meta.dirname, kind.script)], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { HOME: folder, SKYPILOT_DISABLE_USAGE_COLLECTION: "1" },
    })
    this.#answers = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]()
  }

  /** Installs the peer once. If that fails, reports it and returns undefined. */
  static async start(kind: PeerKind, cacheDir: string, report: (line: string) => void): Promise<Peer | undefined> {
    const { name, requirement } = kind
    const venv = join(cacheDir, requirement.replace("==", "-"))
    const python = join(venv, "bin", "python")
    const done = join(venv, "installed")
    try {
      await access(done).catch(async () => {
        report(`installing ${requirement} from PyPI into ${venv}`)
        await mkdir(cacheDir, { recursive: true })
        await run("python3", ["-m", "venv", "--clear", venv])
        await run(python, ["-m", "pip", "install", "--quiet", requirement])
        await writeFile(done, "")
      })
    } catch (error) {
      report(`SKIPPED: no comparison with ${name}, as it could not be installed: ${(error as Error).message}`)
      return undefined
    }
    return new Peer(kind, python, await mkdtemp(join(tmpdir(), "berth-bench-")))
  }

  /** Sends it the catalogue's offers. */
  async load(catalogue: Catalogue): Promise<{ seconds: number; mebibytes: number }> {
    const path = join(this.#folder, "offers.csv")
    const lines: string[] = []
    for (const offer of catalogue.offers()) lines.push(lineOf(offer))
    await writeFile(path, lines.join("\n"))
    return (await this.#send({ load: path })) as { seconds: number; mebibytes: number }
  }

  /** Sends it the queries that it supports, up to a maximum. */
  async ask(questions: readonly Requirements[], most: number): Promise<PeerAnswer[]> {
    const asked = questions.flatMap((question) => {
      const query = this.#kind.queryOf(question)
      return query === undefined ? [] : [{ question, query }]
    })
    const queries = asked.slice(0, most).map(({ query }) => query)
    const answers = (await this.#send({ queries })) as Omit<PeerAnswer, "question">[]
    return answers.map((answer, index) => ({ ...answer, question: asked[index]?.question as Requirements }))
  }

  async stop(): Promise<void> {
    this.#process.stdin.end()
    if (this.#process.exitCode === null) await once(this.#process, "exit")
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #send(request: object): Promise<unknown> {
    this.#process.stdin.write(`${JSON.stringify(request)}\n`)
    const { value, done } = await this.#answers.next()
    if (done) throw new Error(`${this.name} ended`)
    return JSON.parse(value)
  }
}

function lineOf(offer: Offer): string {
  const { cloud, instanceType, region, hourlyPriceUsd, cpu, memoryGib, gpu, provisioning, architecture } = offer
  const machine = [cloud, instanceType, region, hourlyPriceUsd, cpu, memoryGib]
  const cards = [gpu?.count ?? 0, gpu?.model ?? "", gpu?.vramGib ?? 0]
  return [...machine, ...cards, Number(provisioning === "spot"), architecture].join(",")
}

/** dstack's matching of offers. It supports clouds but no regions, and one architecture at a time. */
export const GPUHUNT: PeerKind = {
  name: "gpuhunt",
  requirement: "gpuhunt==0.1.34",
  script: "gpuhunt-peer.py",
  queryOf: ({ cpu, memoryGib, gpu, clouds, architectures, provisioning }) => {
    if (architectures.length > 1) return undefined
    const [architecture] = architectures
    return {
      provider: clouds.length > 0 ? clouds : ["aws", "gcp", "azure"],
      min_cpu: cpu,
      min_memory: memoryGib,
      spot: provisioning === "spot",
      ...(architecture !== undefined && { cpu_arch: architecture === "arm64" ? "arm" : "x86" }),
      ...(gpu !== undefined && { gpu_vendor: "nvidia", min_gpu_count: gpu.count ?? 0.001 }),
      ...(gpu?.model !== undefined && { gpu_name: gpu.model }),
      ...(gpu?.vramGib !== undefined && { min_total_gpu_memory: gpu.vramGib }),
    }
  },
}

/**
 * SkyPilot's optimizer. It places a job without GPUs on one of a few families per cloud, all of them x86. It selects
 * GPUs by model and exact number, not by their memory.
 */
export const SKYPILOT: PeerKind = {
  name: "SkyPilot",
  requirement: "skypilot==0.14.1",
  script: "skypilot-peer.py",
  queryOf: ({ cpu, memoryGib, gpu, clouds, architectures, provisioning }) => {
    const [cloud] = clouds
    const isX86 = architectures.length === 1 && architectures[0] === "amd64"
    const isKnown = gpu === undefined || (gpu.model !== undefined && gpu.vramGib === undefined)
    if (!isX86 || clouds.length > 1 || !isKnown) return undefined
    return {
      cpus: `${cpu}+`,
      memory: `${memoryGib}+`,
      use_spot: provisioning === "spot",
      ...(cloud !== undefined && { infra: cloud }),
      ...(gpu !== undefined && { accelerators: `${gpu.model}:${gpu.count ?? 1}` }),
    }
  },
}
