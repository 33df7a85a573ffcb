import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest"
import { findBinaries, findKubectl } from "./binaries.ts"
import { findDigest, officialRelease } from "./download.ts"
import { currentPlatform, ETCD_VERSION, KUBERNETES_VERSION, SERVERS, WORKSHOP_PREFIX } from "./programs.ts"

const run = promisify(execFile)
const { os, arch } = currentPlatform()

let scratch: string
let lines: string[]
const report = (line: string) => void lines.push(line)

beforeEach(async () => {
  scratch = await mkdtemp(join(tmpdir(), "berth-binaries-"))
  lines = []
  // Has no kubectl and no go except those of a test. tar must be found.
  const tools = join(scratch, "tools")
  await mkdir(tools)
  await run("sh", ["-c", `ln -s "$(command -v tar)" "$(command -v gzip)" "${tools}"`])
  vi.stubEnv("PATH", tools)
  return async () => {
    vi.unstubAllEnvs()
    await rm(scratch, { recursive: true })
  }
})

async function writeProgram(path: string, content = "#!/bin/sh\n") {
  await mkdir(dirname(path), { recursive: true })
  await writeFile(path, content)
  await chmod(path, 0o755)
}

/** Starts a host that publishes `files` by path, and answers 404 for everything else. */
async function serve(files: Record<string, Buffer | string>) {
  const server = createServer((request, response) => {
    const file = files[request.url ?? ""]
    response.statusCode = file === undefined ? 404 : 200
    response.end(file)
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  onTestFinished(() => void server.close())
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { kubernetes: origin, github: origin, githubRaw: origin }
}

/** Lists the files of a directory without its lock, including partial ones. */
async function programsIn(directory: string) {
  return (await readdir(directory)).filter((name) => !name.startsWith(".lock")).sort()
}

const sha256 = (data: Buffer | string) => createHash("sha256").update(data).digest("hex")
const cached = () => join(scratch, "cache", "kubernetes", `${KUBERNETES_VERSION}-${os}-${arch}`)

/** Returns the official releases of this platform, with tiny programs in them. */
async function releases() {
  const files: Record<string, Buffer | string> = {}
  for (const name of ["kube-apiserver", "kube-controller-manager"] as const) {
    const path = `/release/${KUBERNETES_VERSION}/bin/${os}/${arch}/${name}`
    files[path] = `this is ${name}`
    files[`${path}.sha256`] = sha256(`this is ${name}`)
  }
  const folder = `etcd-${ETCD_VERSION}-${os}-${arch}`
  await writeProgram(join(scratch, folder, "etcd"), "this is etcd")
  await run("tar", ["-czf", join(scratch, "etcd.tar.gz"), "-C", scratch, folder])
  const archive = await readFile(join(scratch, "etcd.tar.gz"))
  const base = `/etcd-io/etcd/releases/download/${ETCD_VERSION}`
  files[`${base}/${folder}.tar.gz`] = archive
  files[`${base}/SHA256SUMS`] = `${"0".repeat(64)}  other.tar.gz\n${sha256(archive)}  ${folder}.tar.gz\n`
  return files
}

describe("findBinaries", () => {
  it("uses the named directory, or reports what is missing there", async () => {
    const assetsDir = join(scratch, "assets")
    const options = { assetsDir, cacheDir: join(scratch, "cache"), report }
    await writeProgram(join(assetsDir, "etcd"))
    await expect(findBinaries(options)).rejects.toThrow(/lacks kube-apiserver, kube-controller-manager \(/)
    await writeProgram(join(assetsDir, "kube-apiserver"))
    await writeProgram(join(assetsDir, "kube-controller-manager"))
    expect((await findBinaries(options)).etcd).toBe(join(assetsDir, "etcd"))
  })

  it.runIf(os === "linux")("downloads published programs once, then uses the cache", async () => {
    const options = { cacheDir: join(scratch, "cache"), report, origins: await serve(await releases()) }
    const abandoned = join(cached(), `${WORKSHOP_PREFIX}abandoned`)
    await writeProgram(join(abandoned, "etcd"), "half of it")
    const both = await Promise.all([findBinaries(options), findBinaries(options)])
    for (const name of SERVERS) {
      expect(await readFile(both[0][name], "utf8")).toBe(`this is ${name}`)
    }
    expect(lines.filter((line) => line.startsWith("downloading kube-apiserver: 100 %"))).toHaveLength(1)
    expect(lines.filter((line) => line.startsWith("waiting for process"))).toHaveLength(1)
    expect(await programsIn(cached())).toEqual([...SERVERS].sort())

    const offline = { ...options, origins: await serve({}) }
    expect(await findBinaries(offline)).toEqual(both[1])
  })

  it.runIf(os === "linux")("rejects a file with a wrong checksum, and reports every attempt", async () => {
    const files = await releases()
    files[`/release/${KUBERNETES_VERSION}/bin/${os}/${arch}/kube-apiserver`] = "something else"
    delete files[`/release/${KUBERNETES_VERSION}/bin/${os}/${arch}/kube-controller-manager`]
    const origins = await serve(files)
    const found = findBinaries({ cacheDir: join(scratch, "cache"), report, origins })
    const message = await found.then(
      () => "found",
      (error: Error) => error.message,
    )
    expect(message).toContain("no way was found to get kube-apiserver, kube-controller-manager")
    expect(message).toContain(`sha256 is ${sha256("something else")}, published is ${sha256("this is kube-apiserver")}`)
    expect(message).toContain("kube-controller-manager: HTTP 404")
    expect(message).toContain("build with Go: there is no go in PATH")
    expect(message).toContain("set KUBEBUILDER_ASSETS")
    expect(await programsIn(cached())).toEqual(["etcd"])
  })

  it("rejects with the signal's reason during a download, and leaves no partial files", async () => {
    let endless: ServerResponse | undefined
    const server = createServer((request, response) => {
      if (request.url?.endsWith("SHA256SUMS") || request.url?.endsWith(".sha256")) response.end(`${"0".repeat(64)}\n`)
      else endless = response.writeHead(200)
    }).listen(0, "127.0.0.1")
    await once(server, "listening")
    // The body never ends, so only the signal can end the download.
    const more = setInterval(() => endless?.write("more"), 100)
    onTestFinished(() => {
      clearInterval(more)
      server.closeAllConnections()
      server.close()
    })
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const origins = { kubernetes: origin, github: origin, githubRaw: origin }
    const stop = new AbortController()
    const search = findBinaries({ cacheDir: join(scratch, "cache"), report, origins, signal: stop.signal })
    server.on("request", ({ url }) => {
      if (!/sha256/i.test(url ?? "")) stop.abort(new Error("stopped by SIGTERM"))
    })
    await expect(search).rejects.toThrow("stopped by SIGTERM")
    expect(await programsIn(cached())).toEqual([])
  })

  it("tries the next way at once if the hosts are unreachable", async () => {
    const server = createServer().listen(0, "127.0.0.1")
    await once(server, "listening")
    const refused = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.close()
    const origins = { kubernetes: refused, github: refused, githubRaw: refused }
    await expect(findBinaries({ cacheDir: join(scratch, "cache"), report, origins })).rejects.toThrow(/ECONNREFUSED/)
    expect(lines).toEqual([
      expect.stringMatching(new RegExp(`^no download of ${SERVERS.join(", ")} \\(.*ECONNREFUSED`)),
    ])
  })
})

describe("findKubectl", () => {
  it("prefers PATH, then the named directory", async () => {
    const options = { assetsDir: join(scratch, "assets"), cacheDir: join(scratch, "cache"), report }
    await writeProgram(join(options.assetsDir, "kubectl"))
    expect(await findKubectl(options)).toBe(join(options.assetsDir, "kubectl"))
    await writeProgram(join(scratch, "tools", "kubectl"))
    expect(await findKubectl(options)).toBe("kubectl")
  })
})

describe("the official releases", () => {
  const origins = { kubernetes: "k8s:", github: "gh:", githubRaw: "raw:" }
  const url = (name: Parameters<typeof officialRelease>[0], on: string) =>
    officialRelease(name, { os: on, arch: "arm64" }, origins)?.url

  it("come from Kubernetes for linux, and from envtest for darwin, which has fewer", () => {
    expect(url("kube-apiserver", "linux")).toBe(`k8s:/release/${KUBERNETES_VERSION}/bin/linux/arm64/kube-apiserver`)
    expect(url("kubectl", "darwin")).toBe(`k8s:/release/${KUBERNETES_VERSION}/bin/darwin/arm64/kubectl`)
    expect(url("kube-apiserver", "darwin")).toMatch(/envtest-v1\.35\.0-darwin-arm64\.tar\.gz$/)
    expect(url("kube-controller-manager", "darwin")).toBeUndefined()
    expect(url("etcd", "darwin")).toMatch(/etcd-v3\.6\.6-darwin-arm64\.zip$/)
  })

  it("have their digests in three document formats", () => {
    const short = "a".repeat(64)
    const long = "b".repeat(128)
    expect(findDigest(`${short}\n`, "etcd", "sha256")).toBe(short)
    expect(findDigest(`${"c".repeat(64)}  other\n${short}  file.tgz\n`, "file.tgz", "sha256")).toBe(short)
    const index = `releases:\n  v1.35.0:\n    x-file.tgz:\n      hash: ${"c".repeat(128)}\n    file.tgz:\n      hash: ${long}\n`
    expect(findDigest(index, "file.tgz", "sha512")).toBe(long)
    expect(findDigest("<html>", "file.tgz", "sha256")).toBeUndefined()
    expect(findDigest(`${short}  file.tgz.asc\n`, "file.tgz", "sha256")).toBeUndefined()
  })
})
