import { execFile, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { parseArgs, promisify } from "node:util"
import { checksums, linkedTo, notesOf, provenance, type ReleaseFile, ThrowAwayKey } from "./attest.ts"
import { bundle, bundleCli, sbomOf } from "./bundle.ts"
import { packPython } from "./python-package.ts"
import { parseVersion } from "./version.ts"

/**
 * Builds everything that a tag publishes: `npm run release -- --tag v1.2.3`, which the workflow `release` runs.
 * `--dry-run` needs no tag, and signs the files with a key that it then forgets. Needs npm, tar, helm, kubectl,
 * docker with buildx, and Python 3.10 with venv.
 *
 * The folder `--out` gets `files/`, which the release on GitHub has, and `images/`, each an archive in OCI's layout
 * with both architectures. `files/images.txt` has their digests.
 */

const run = promisify(execFile)
const ROOT = dirname(import.meta.dirname)
const REPOSITORY = "ghcr.io/berth-dev/berth"
const PLATFORMS = "linux/amd64,linux/arm64"

/** Berth's images: the suffix of the repository, which is the target of the Dockerfile. The last target has no name. */
const IMAGES = ["", "-agent", "-volumes"] as const

/** Words above the manifests that are applied as they are. */
const INSTALL_NOTE =
  "# Put your own domain in place of berth.example.com before you apply this: docs/install.md, By kubectl.\n"

export interface ReleaseOptions {
  out: string
  /** Tag of the release; undefined for a rehearsal. */
  tag: string | undefined
  /** Arguments of `docker buildx build` for all images, such as the bases of a mirror. */
  buildArgs: readonly string[]
  /** Adds BuildKit's list of what is installed in the images. Its scanner is an image of Docker Hub. */
  scan: boolean
}

/** Builds a release into its folder, and replaces that. @throws Error if the tag is not the version of package.json */
export async function buildRelease({ out, tag, buildArgs, scan }: ReleaseOptions): Promise<void> {
  const startedOn = new Date()
  const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
  if (tag !== undefined && tag !== `v${version}`)
    throw new Error(
      `the tag is ${tag}, and package.json has ${version}: tag the commit v${version}, or change package.json`,
    )
  parseVersion(version)
  const notes = linkedTo(`v${version}`, await releaseNotes(version, tag !== undefined))
  await checkPrograms()
  const [files, images] = [join(out, "files"), join(out, "images")]
  await rm(out, { recursive: true, force: true })
  await Promise.all([files, images].map((folder) => mkdir(folder, { recursive: true })))
  await packBundle(files, version)
  await packCli(files)
  await packChart(files)
  await packPython(files)
  await writeFile(join(files, "crds.yaml"), await kustomize("crds"))
  await writeFile(join(files, "install.yaml"), INSTALL_NOTE + (await kustomize("manifests/overlays/default")))
  await writeFile(join(files, "notes.md"), notes)
  const digests: string[] = []
  for (const suffix of IMAGES) {
    const digest = await buildImage(join(images, `berth${suffix}.oci.tar`), suffix, version, { buildArgs, scan })
    digests.push(`${REPOSITORY}${suffix}@${digest}\n`)
  }
  await writeFile(join(files, "images.txt"), digests.join(""))
  const published = await filesIn(files)
  await writeFile(join(files, "SHA256SUMS"), checksums(published))
  if (tag === undefined)
    await signRehearsal(files, { version, startedOn, finishedOn: new Date(), commit: await commit() })
}

/** Programs that a release needs, each with arguments that print its version. */
const PROGRAMS = [
  ["helm", "version"],
  ["kubectl", "version", "--client"],
  ["docker", "buildx", "version"],
  ["python3", "-c", "import ensurepip"],
] as const

const NAMES: Readonly<Record<string, string>> = {
  docker: "docker with its plugin buildx",
  python3: "Python 3.10 or newer with venv (Debian: python3-venv)",
}

/** @throws Error if a program is missing, before minutes are spent on the files */
async function checkPrograms(): Promise<void> {
  for (const [program, ...args] of PROGRAMS)
    await run(program, args).catch((cause: unknown) => {
      const name = NAMES[program] ?? program
      throw new Error(`${name} is missing: a release needs helm, kubectl, docker with buildx, and Python`, { cause })
    })
}

/** Signs the files in place of the workflow, which has an identity at GitHub in place of a key. */
async function signRehearsal(folder: string, build: Parameters<typeof provenance>[1]): Promise<void> {
  const key = new ThrowAwayKey()
  const published = await filesIn(folder)
  const sums = await readFile(join(folder, "SHA256SUMS"))
  await writeFile(join(folder, "SHA256SUMS.sigstore.json"), key.signFile(sums))
  await writeFile(join(folder, "provenance.sigstore.json"), key.signStatement(provenance(published, build)))
  await writeFile(join(folder, "cosign.pub"), key.publicPem)
}

/** Writes the program with its source maps as an archive, and the list of its packages. */
async function packBundle(folder: string, version: string): Promise<void> {
  const scratch = await mkdtemp(join(tmpdir(), "berth-release-"))
  try {
    const name = `berth-${version}`
    const { packages } = await bundle(join(scratch, name))
    const archive = join(folder, `${name}-bundle.tar.gz`)
    await run("tar", ["--create", "--gzip", "--file", archive, "--directory", scratch, name])
    const sbom = `${JSON.stringify(await sbomOf(packages), undefined, 2)}\n`
    await writeFile(join(folder, "berth-packages.spdx.json"), sbom)
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** Writes the tarball of the command `berth` for people. @returns its path */
export async function packCli(folder: string): Promise<string> {
  const scratch = await mkdtemp(join(tmpdir(), "berth-cli-"))
  try {
    await bundleCli(scratch)
    const { stdout } = await run("npm", ["pack", "--silent", scratch, "--pack-destination", folder], { cwd: folder })
    return join(folder, stdout.trim())
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** Writes the packaged chart, by this helm. @returns its path */
export async function packChart(folder: string, helm = "helm"): Promise<string> {
  const { stdout } = await run(helm, ["package", join(ROOT, "charts", "berth"), "--destination", folder])
  const path = /saved it to: (.+)/.exec(stdout)?.[1]
  if (path === undefined) throw new Error(`helm package names no file: ${stdout}`)
  return path
}

async function kustomize(folder: string): Promise<string> {
  return (await run("kubectl", ["kustomize", join(ROOT, folder)], { maxBuffer: 64 * 1024 ** 2 })).stdout
}

/** Builds an image for both architectures into an archive. @returns its digest */
async function buildImage(
  archive: string,
  suffix: string,
  version: string,
  { buildArgs, scan }: Pick<ReleaseOptions, "buildArgs" | "scan">,
): Promise<string> {
  const metadata = `${archive}.json`
  const args = ["buildx", "build", "--platform", PLATFORMS, "--output", `type=oci,dest=${archive}`]
  args.push("--provenance", "mode=max", `--sbom=${scan}`, "--metadata-file", metadata)
  args.push("--label", `org.opencontainers.image.version=${version}`)
  args.push("--label", `org.opencontainers.image.revision=${await commit()}`)
  if (suffix !== "") args.push("--target", suffix.slice(1))
  await shown("docker", [...args, ...buildArgs.flatMap((arg) => ["--build-arg", arg]), ROOT])
  const { "containerimage.digest": digest } = JSON.parse(await readFile(metadata, "utf8")) as Record<string, string>
  await rm(metadata)
  if (digest === undefined) throw new Error(`docker buildx names no digest of ${archive}`)
  return digest
}

async function commit(): Promise<string> {
  return (await run("git", ["rev-parse", "HEAD"], { cwd: ROOT })).stdout.trim()
}

/** Runs a program that shows its own progress. @throws Error if it fails */
async function shown(program: string, args: readonly string[]): Promise<void> {
  const child = spawn(program, args, { stdio: ["ignore", "inherit", "inherit"] })
  const [code] = (await once(child, "close")) as [number | null]
  if (code !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${code}; its output is above`)
}

/** Returns the changelog's entry, or what is unreleased. @throws Error if the entry is needed and missing */
async function releaseNotes(version: string, needed: boolean): Promise<string> {
  const changelog = await readFile(join(ROOT, "CHANGELOG.md"), "utf8")
  const notes = notesOf(changelog, version)
  if (notes !== undefined) return notes
  if (needed) throw new Error(`CHANGELOG.md has no entry of ${version}: add the heading "## ${version}" and its notes`)
  console.error(`release: CHANGELOG.md has no entry of ${version}; the notes are those of what is unreleased`)
  return notesOf(changelog, "Unreleased") ?? "\n"
}

async function filesIn(folder: string): Promise<ReleaseFile[]> {
  const names = (await readdir(folder)).sort()
  return await Promise.all(names.map(async (name) => ({ name, content: await readFile(join(folder, name)) })))
}

/** Prints each file of the release with its size in KiB. */
async function list(out: string): Promise<void> {
  for (const folder of ["files", "images"])
    for (const name of (await readdir(join(out, folder))).sort()) {
      const { size } = await stat(join(out, folder, name))
      console.log(`${String(Math.ceil(size / 1024)).padStart(9)} KiB  ${folder}/${name}`)
    }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      out: { type: "string", default: join(ROOT, "release") },
      tag: { type: "string" },
      "dry-run": { type: "boolean", default: false },
      "build-arg": { type: "string", multiple: true, default: [] },
      "no-scan": { type: "boolean", default: false },
    },
  })
  const { tag, out, "build-arg": buildArgs, "dry-run": isRehearsal, "no-scan": unscanned } = values
  if (isRehearsal === (tag !== undefined)) {
    console.error("release: give either --tag v<version>, or --dry-run")
    process.exit(2)
  }
  try {
    await buildRelease({ out: resolve(out), tag, buildArgs, scan: !unscanned })
    await list(resolve(out))
  } catch (error) {
    console.error(`release: ${error instanceof Error ? error.message : String(error)}`)
    process.exitCode = 1
  }
}
