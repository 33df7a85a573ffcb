import { execFile, spawnSync } from "node:child_process"
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, inject, it } from "vitest"
import { pythonVersion } from "../../scripts/version.ts"
import { docker, missingForContainers } from "../agent/images.ts"
import { helmProgram } from "../chart/helm.ts"
import { oldestNode } from "../cli/oldest-node.ts"
import { NAMESPACE } from "../install/cluster.ts"
import { installRelease, type Release } from "../install/release.ts"
import { missingTool, needing } from "../needing.ts"
import { missingForRegistry, type OpenRegistry, startOpenRegistry } from "../registry.ts"
import { missingForBases, pushBases, runsArm64 } from "./bases.ts"
import { type BuildKit, startBuildKit } from "./buildkit.ts"
import { verifiedBy } from "./signatures.ts"

/**
 * A release, rehearsed: `npm run release -- --dry-run` builds the files of a tag, and this suite installs from exactly
 * these files, as the workflow publishes them.
 */

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")
const PROJECT = "acme"

const missing =
  (await missingForContainers()) ??
  missingForRegistry() ??
  missingForBases() ??
  missingTool("moto", "helm", "the oldest Node.js") ??
  (spawnSync("skopeo", ["--version"]).status === 0 ? undefined : "skopeo is missing: sudo .ci/packages skopeo") ??
  ((await runsArm64()) ? undefined : "no emulation of arm64 is enabled: sudo .ci/packages qemu-user-static")

/** Restrictions of the chart's pods. */
const RESTRICTED = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]

needing(missing).describe("a rehearsed release", { timeout: 1_200_000 }, () => {
  let folder: string
  let registry: OpenRegistry
  let buildKit: BuildKit
  let release: Release | undefined
  let version: string
  let files: string
  /** Digests by repository, from `images.txt`. */
  let digests: Record<string, string>

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-rehearsal-"))
    version = (JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }).version
    registry = await startOpenRegistry(() => false)
    buildKit = await startBuildKit(folder)
    const PATH = [dirname(await helmProgram()), dirname(inject("kubectlPath")), process.env["PATH"]].join(":")
    const bases = await pushBases(join(folder, "bases"), registry.host, buildKit.env)
    const args = [
      "--dry-run",
      "--no-scan",
      "--out",
      join(folder, "release"),
      ...bases.flatMap((base) => ["--build-arg", base]),
    ]
    const env = { ...buildKit.env, PATH }
    const { stdout } = await run("npm", ["run", "--silent", "release", "--", ...args], {
      cwd: ROOT,
      env,
      maxBuffer: 64 * 1024 ** 2,
    })
    console.log(stdout)
    files = join(folder, "release", "files")
    const lines = (await readFile(join(files, "images.txt"), "utf8")).trim().split("\n")
    digests = Object.fromEntries(
      lines.map((line) => /^ghcr\.io\/berth-dev\/(\S+)@(\S+)$/.exec(line)?.slice(1) ?? [line]),
    )
  }, 1_200_000)
  afterAll(async () => {
    await release?.close()
    for (const name of Object.keys(digests ?? {})) await removeImage(name)
    await buildKit?.stop()
    await registry?.stop()
    await rm(folder, { recursive: true, force: true })
  })

  /** Reference of an image in the registry that it was pushed into. */
  const pulled = (name: string) => `${registry.host}/${name}@${digests[name]}`

  const removeImage = async (name: string): Promise<void> => {
    const [image] = await docker.listImages({ filters: { reference: [`${registry.host}/${name}`] } })
    if (image !== undefined) await docker.getImage(image.Id).remove({ force: true })
  }

  it("has every file of a tag, with checksums and provenance of the very files, signed", async () => {
    const program = [`berth-${version}-bundle.tar.gz`, `berth-dev-cli-${version}.tgz`, `berth-${version}.tgz`]
    const python = ["-py3-none-any.whl", ".tar.gz"].map((end) => `berth_jobs-${pythonVersion(version)}${end}`)
    const others = ["berth-packages.spdx.json", "crds.yaml", "images.txt", "install.yaml", "notes.md"]
    const documents = ["SHA256SUMS", "SHA256SUMS.sigstore.json", "cosign.pub", "provenance.sigstore.json"]
    expect((await readdir(files)).sort()).toEqual([...program, ...python, ...others, ...documents].sort())
    await run("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: files })
    const of = (name: string) => readFile(join(files, name), "utf8")
    const sums = await of("SHA256SUMS")
    expect(sums.match(/\S+$/gm)).toEqual([...program, ...python, ...others].sort())
    const key = await of("cosign.pub")
    verifiedBy(key, await of("SHA256SUMS.sigstore.json"), Buffer.from(sums))
    const { subject } = verifiedBy(key, await of("provenance.sigstore.json")) as {
      subject: { name: string; digest: { sha256: string } }[]
    }
    for (const line of sums.trim().split("\n"))
      expect(subject.map(({ name, digest }) => `${digest.sha256}  ${name}`)).toContain(line)
  })

  it("has images that a registry takes by their digests, and that run on both architectures", async () => {
    expect(Object.keys(digests)).toEqual(["berth", "berth-agent", "berth-volumes"])
    for (const name of Object.keys(digests)) {
      const archive = `oci-archive:${join(folder, "release", "images", `${name}.oci.tar`)}`
      const push = [
        "copy",
        "--all",
        "--preserve-digests",
        "--dest-tls-verify=false",
        archive,
        `docker://${pulled(name)}`,
      ]
      await run("skopeo", ["--insecure-policy", ...push])
      const said = name === "berth-volumes" ? "rclone v" : version
      // The engine keeps one architecture of a digest. The cluster below needs this machine's.
      for (const platform of ["linux/arm64", "linux/amd64"]) {
        await removeImage(name)
        await run("docker", ["pull", "--quiet", "--platform", platform, pulled(name)])
        const args = ["run", "--rm", "--platform", platform, ...RESTRICTED, pulled(name)]
        const { stdout } = await run("docker", [...args, name === "berth-volumes" ? "version" : "--version"])
        expect(stdout, `${name} on ${platform}`).toContain(said)
      }
    }
  })

  it("installs by helm from the packaged chart, with the image by its digest", async () => {
    const values = { repository: `${registry.host}/berth`, digest: digests["berth"] ?? "" }
    release = await installRelease(join(files, `berth-${version}.tgz`), { values, binds: [] })
    const { kubelet } = release.cluster
    const pods = [...kubelet.ready("operator"), ...kubelet.ready("facade")]
    const running = new Set(pods.flatMap(({ spec }) => spec.containers.map(({ image }) => image)))
    expect([...running]).toEqual([pulled("berth")])
    expect(kubelet.faults).toEqual([])
    const shown = JSON.parse(await release.cluster.helm(["list", "--output", "json"])) as object[]
    expect(shown).toMatchObject([{ namespace: NAMESPACE, chart: `berth-${version}`, app_version: version }])
  })

  it("has a command line that installs by npm, runs by npx on its oldest Node.js, and calls the façade", async () => {
    if (release === undefined) throw new Error("the test before this one has installed no release")
    const { cluster } = release
    await release.apply(
      {
        apiVersion: "berth.dev/v1alpha1",
        kind: "Organization",
        metadata: { name: "sea" },
        spec: { displayName: "Sea" },
      },
      {
        apiVersion: "berth.dev/v1alpha1",
        kind: "Project",
        metadata: { name: PROJECT },
        spec: { displayName: "Acme", organization: "sea" },
      },
    )
    await cluster.kubectl(["wait", "--for=condition=Ready", `project/${PROJECT}`, "--timeout=120s"])
    const key = ["key", "--name", "ci", "--role", "admin", "--namespace", PROJECT]
    const { stdout: manifest, stderr } = await run("docker", ["run", "--rm", ...RESTRICTED, pulled("berth"), ...key])
    await cluster.kubectl(["apply", "--server-side", "-f", "-"], manifest)
    await cluster.kubectl(["wait", "--for=condition=Ready", "apikey/ci", "-n", PROJECT, "--timeout=120s"])
    const home = join(folder, "npm")
    await mkdir(home)
    await writeFile(join(home, "package.json"), "{}")
    const env = {
      PATH: `${dirname(await oldestNode())}:${process.env["PATH"]}`,
      HOME: home,
      BERTH_URL: `http://${cluster.address}:${cluster.facadePort}`,
      BERTH_PROJECT: PROJECT,
      BERTH_API_KEY: /^berth_\S+$/m.exec(stderr)?.[0] ?? "",
    }
    const tarball = join(files, `berth-dev-cli-${version}.tgz`)
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball], { cwd: home, env })
    const berth = async (...args: string[]) =>
      (await run("npx", ["--offline", "berth", ...args], { cwd: home, env })).stdout
    expect((await berth("--version")).trim()).toBe(version)
    expect(await berth("--help")).toContain("Usage: berth")
    expect(JSON.parse(await berth("ps", "--all", "--json"))).toEqual([])
  })
})
