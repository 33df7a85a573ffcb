import { execFile, spawn } from "node:child_process"
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { promisify } from "node:util"
import { ETCD_VERSION, KUBERNETES_VERSION, type ProgramName, type Report, WORKSHOP_PREFIX } from "./programs.ts"

const run = promisify(execFile)

const REPORT_INTERVAL_MS = 10_000
const ERROR_TAIL_LINES = 15

const KUBERNETES_MODULE = "k8s.io/kubernetes"
const ETCD_MODULE = "go.etcd.io/etcd/server/v3"

/** What `go mod edit -json` prints of a go.mod, as far as it is used here. */
interface GoModJson {
  readonly Go: string
  readonly Replace: readonly { readonly Old: { readonly Path: string } }[] | null
}

/** One `go build` in a module made for it. */
interface Build {
  readonly directory: string
  readonly packages: readonly string[]
  readonly flags: readonly string[]
  readonly output: string
}

/**
 * Builds the named programs with the Go toolchain in PATH, from their official modules, and puts them into `directory`
 * (each by one rename, when it is whole). Takes about 8 minutes on 2 cores the first time; Go's own build cache makes
 * an interrupted build go on where it was.
 *
 * Throws an Error that says why when there is no `go`, or when a download or the build fails.
 */
export async function buildWithGo(names: readonly ProgramName[], directory: string, report: Report): Promise<void> {
  const version = await goVersion()
  await mkdir(directory, { recursive: true })
  const workshop = await mkdtemp(join(directory, WORKSHOP_PREFIX))
  try {
    const output = join(workshop, "out")
    await mkdir(output)
    report(`building ${names.join(", ")} with ${version}: about 8 minutes on 2 cores, only this once`)
    const kubernetes = names.filter((name) => name !== "etcd")
    if (kubernetes.length > 0) {
      await goBuild(await kubernetesBuild(kubernetes, workshop, output), report)
    }
    if (names.includes("etcd")) {
      await goBuild(await etcdBuild(workshop, output), report)
    }
    for (const name of names) {
      await rename(join(output, name), join(directory, name))
    }
  } finally {
    await rm(workshop, { recursive: true, force: true })
  }
}

async function goVersion(): Promise<string> {
  try {
    return (await run("go", ["env", "GOVERSION"])).stdout.trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") {
      throw new Error("there is no go in PATH", { cause: error })
    }
    throw error
  }
}

/**
 * The go.mod that makes Kubernetes' main packages buildable outside its repository: there the staging modules
 * (k8s.io/api, …) are replaced by folders that the published module lacks; here by their published versions, which
 * are v0.X.Y for Kubernetes v1.X.Y. `default` keeps Go's behaviour switches as the official build has them.
 */
export function kubernetesGoMod(upstream: GoModJson, version: string): string {
  const staging = version.replace(/^v1\./, "v0.")
  const replaced = (upstream.Replace ?? []).map(({ Old }) => `replace ${Old.Path} => ${Old.Path} ${staging}`)
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(upstream.Go) ?? []
  return [
    "module controlplane.invalid/kubernetes",
    `go ${upstream.Go}`,
    `godebug default=go${major}.${minor}`,
    `require ${KUBERNETES_MODULE} ${version}`,
    ...replaced,
    "",
  ].join("\n")
}

/** The linker flags of the official build (hack/lib/version.sh): stripped, and telling their version. */
export function kubernetesLinkerFlags(version: string): string {
  const [, major, minor] = /^v(\d+)\.(\d+)/.exec(version) ?? []
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor }
  const packages = ["k8s.io/client-go/pkg/version", "k8s.io/component-base/version"]
  const variables = Object.entries(values).flatMap(([name, value]) =>
    packages.map((path) => `-X ${path}.${name}=${value}`),
  )
  return ["-s", "-w", ...variables].join(" ")
}

async function kubernetesBuild(names: readonly ProgramName[], workshop: string, output: string): Promise<Build> {
  const directory = join(workshop, "kubernetes")
  await mkdir(directory)
  const module = JSON.parse(
    (await go(["mod", "download", "-json", `${KUBERNETES_MODULE}@${KUBERNETES_VERSION}`])).stdout,
  )
  const upstream = JSON.parse((await go(["mod", "edit", "-json", (module as { GoMod: string }).GoMod])).stdout)
  await writeFile(join(directory, "go.mod"), kubernetesGoMod(upstream as GoModJson, KUBERNETES_VERSION))
  return {
    directory,
    packages: names.map((name) => `${KUBERNETES_MODULE}/cmd/${name}`),
    flags: ["-tags", "selinux,notest,grpcnotrace", "-ldflags", kubernetesLinkerFlags(KUBERNETES_VERSION)],
    output: `${output}/`,
  }
}

async function etcdBuild(workshop: string, output: string): Promise<Build> {
  const directory = join(workshop, "etcd")
  await mkdir(directory)
  await writeFile(
    join(directory, "go.mod"),
    ["module controlplane.invalid/etcd", "go 1.24", `require ${ETCD_MODULE} ${ETCD_VERSION}`, ""].join("\n"),
  )
  return { directory, packages: [ETCD_MODULE], flags: ["-ldflags", "-s -w"], output: join(output, "etcd") }
}

async function goBuild(build: Build, report: Report): Promise<void> {
  const { directory, packages, flags, output } = build
  report(`fetching the modules of ${packages.join(", ")}`)
  const listed = await go(["list", "-mod=mod", "-deps", ...packages], directory)
  const total = listed.stdout.trim().split("\n").length
  const args = ["build", "-mod=mod", "-trimpath", ...flags, "-v", "-o", output, ...packages]
  // `env` sets the two variables and leaves the rest of the environment (proxies, GOPROXY, …) to Go.
  const child = spawn("env", ["CGO_ENABLED=0", "GOWORK=off", "go", ...args], {
    cwd: directory,
    stdio: ["ignore", "ignore", "pipe"],
  })
  const lines: string[] = []
  createInterface({ input: child.stderr }).on("line", (line) => lines.push(line))
  const started = Date.now()
  const timer = setInterval(() => {
    const minutes = ((Date.now() - started) / 60_000).toFixed(1)
    report(`go build: ${lines.length} of at most ${total} packages, ${minutes} min`)
  }, REPORT_INTERVAL_MS)
  try {
    await new Promise<void>((resolve, reject) => {
      child.once("error", reject)
      child.once("close", (code, signal) => {
        if (code === 0) return resolve()
        const tail = lines.slice(-ERROR_TAIL_LINES).join("\n")
        reject(new Error(`go build ended with ${signal ?? `exit code ${code}`}:\n${tail}`))
      })
    })
  } finally {
    clearInterval(timer)
  }
}

async function go(args: readonly string[], cwd?: string): Promise<{ stdout: string }> {
  try {
    return await run("env", ["CGO_ENABLED=0", "GOWORK=off", "go", ...args], {
      maxBuffer: 64 * 1024 * 1024,
      ...(cwd === undefined ? {} : { cwd }),
    })
  } catch (error) {
    const { stderr } = error as { stderr?: string }
    const tail = (stderr ?? String(error)).trim().split("\n").slice(-ERROR_TAIL_LINES).join("\n")
    throw new Error(`go ${args.slice(0, 2).join(" ")} failed:\n${tail}`, { cause: error })
  }
}
