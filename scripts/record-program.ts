import { execFile } from "node:child_process"
import { mkdir, mkdtemp, readFile, rm, stat } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { build, type Metafile } from "esbuild"
import { bundle, IN_PARTS } from "./bundle.ts"

/**
 * Records the built program of this version for the tests of later ones: `npm run record` also writes
 * `test/upgrade/<version>/program.tar.xz`. It is the program of a release, with shorter names of variables. It lacks what
 * such a test never uses: source maps, the page `/1/docs`, the SDKs of Google Cloud and Azure, and the agent as a file of
 * its own (`berth.mjs agent` is the same).
 */

const ROOT = dirname(import.meta.dirname)
const LEFT_OUT = ["agent.mjs", "agent.mjs.map", "berth.mjs.map", "node_modules", "parts"]
/** Packages of SDKs that are left out. */
const UNUSED_SDKS = /node_modules\/(?:@google-cloud|@azure|google-gax|@grpc|@typespec|protobufjs)\//

async function record(): Promise<string> {
  const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
  const scratch = await mkdtemp(join(tmpdir(), "berth-record-"))
  try {
    const program = join(scratch, "berth")
    await bundle(program)
    for (const name of LEFT_OUT) await rm(join(program, name), { recursive: true, force: true })
    const entryPoints = [{ in: "src/main.ts", out: "berth" }]
    const { metafile } = await build({ ...IN_PARTS, entryPoints, outdir: program, minify: true })
    for (const part of unusedParts(metafile)) await rm(join(ROOT, part))
    const archive = join(ROOT, "test", "upgrade", version, "program.tar.xz")
    await mkdir(dirname(archive), { recursive: true })
    const order = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]
    const env = { ...process.env, XZ_OPT: "-9e" }
    await promisify(execFile)("tar", ["-cJf", archive, "-C", scratch, ...order, "berth"], { env })
    return archive
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** Returns the paths of the parts that the program does not load without the unused SDKs. Pure. */
function unusedParts({ outputs }: Metafile): string[] {
  const parts = Object.keys(outputs)
  const needed = new Set(parts.filter((path) => outputs[path]?.entryPoint === "src/main.ts"))
  // A set's iteration also visits what is added meanwhile.
  for (const path of needed)
    for (const { path: imported, kind } of outputs[path]?.imports ?? [])
      if (kind !== "dynamic-import" || !isOfUnusedSdk(outputs[imported])) needed.add(imported)
  return parts.filter((path) => !needed.has(path))
}

/** Returns true if most of a part is from unused SDKs. */
function isOfUnusedSdk(part: Metafile["outputs"][string] | undefined): boolean {
  const sizes = Object.entries(part?.inputs ?? {}).map(([path, { bytesInOutput }]) => [path, bytesInOutput] as const)
  const unused = sizes.filter(([path]) => UNUSED_SDKS.test(path))
  const sumOf = (some: typeof sizes) => some.reduce((sum, [, bytes]) => sum + bytes, 0)
  return sumOf(unused) > sumOf(sizes) / 2
}

const archive = await record()
console.log(`${archive}: ${((await stat(archive)).size / 1e6).toFixed(2)} MB`)
