import { execFile } from "node:child_process"
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { parseArgs, promisify } from "node:util"
import { type BuildOptions, build, type Metafile } from "esbuild"

/**
 * Makes `dist/`: the program as one file that needs nothing of node_modules, the agent once more as a file of its own, and
 * beside them what they read, at the same paths as in the repository (`src/package.ts`). `npm run build`, or
 * `scripts/bundle.ts --out FOLDER`; with `--sbom FILE` also the list of the packages that are in it (SPDX, JSON), which no
 * scanner can read out of one file.
 */

const ROOT = dirname(import.meta.dirname)
const PROGRAM = "berth.mjs"
const AGENT = "agent.mjs"
const LICENCES = "THIRD-PARTY-LICENCES.txt"

/** What the program reads of its own package at run time. */
const READ_FILES = ["src/catalogue/data", "src/facade/docs/page", "LICENSE"]

/** Files of packages that the program sends to browsers as they are, and the licences of what is inside of them. */
const SENT_FILES = ["swagger-ui-bundle.js", "swagger-ui-bundle.js.LICENSE.txt", "swagger-ui.css"].map(
  (file) => `node_modules/swagger-ui-dist/${file}`,
)

/** How an SPDX document calls itself. */
const SPDX_DOCUMENT = "SPDXRef-DOCUMENT"
/** Without --omit=dev, which leaves out what development needs as well. */
const NPM_SBOM = ["sbom", "--sbom-format=spdx", "--sbom-type=application", "--package-lock-only"]

/** What may be given away inside of an image under Apache-2.0. */
const ALLOWED = ["Apache-2.0", "MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "BlueOak-1.0.0", "Unlicense"]

/**
 * What only other commands than `agent` load: a tenth of the program is left without it. The smallest VMs have half a
 * gigabyte, and a process has all of its program's text in memory.
 */
const NOT_THE_AGENTS = [
  ...["./operator.ts", "./api-server.ts", "./providers.ts", "./connect.ts"],
  ...["./identity/key-manifest.ts", "./identity/login.ts", "./identity/sealing-keys.ts"],
]

/** What modules of the older kind expect to find around them. */
const COMMONJS = [
  "import { createRequire } from 'node:module'",
  "const require = createRequire(import.meta.url)",
  "const { dirname: __dirname, filename: __filename } = import.meta",
].join("\n")

interface Manifest {
  name: string
  version: string
  license?: string
  /** As packages had it before `license`. */
  licenses?: { type: string }[]
  description?: string
  engines?: object
}

/** How anything of ours is made one file. */
export const ONE_FILE = {
  absWorkingDir: ROOT,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node24",
  banner: { js: `#!/usr/bin/env node\n${COMMONJS}` },
  // Addons that ssh2 would like to have, and does without.
  external: ["*.node", "cpu-features"],
  // Smaller, while a stack trace still tells the names of functions.
  minifyWhitespace: true,
  minifySyntax: true,
  keepNames: true,
  legalComments: "none",
  logLevel: "warning",
} as const satisfies BuildOptions

export interface Bundled {
  /** Paths of all that it was made of, in the repository. */
  inputs: string[]
  /** Packages that something of is in it, as `name@version`. */
  packages: Set<string>
}

/** Writes the bundle into a folder, in place of whatever is there. @throws Error for a licence that nobody looked at */
export async function bundle(folder: string): Promise<Bundled> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const mapped = { ...ONE_FILE, entryPoints: ["src/main.ts"], sourcemap: true, sourcesContent: false }
  const { metafile } = await build({ ...mapped, outfile: join(folder, PROGRAM), metafile: true })
  const external = [...ONE_FILE.external, ...NOT_THE_AGENTS]
  await build({ ...mapped, outfile: join(folder, AGENT), external })
  for (const file of [...READ_FILES, ...SENT_FILES]) await cp(join(ROOT, file), join(folder, file), { recursive: true })
  const { name, version, description, license, engines } = await manifestOf(ROOT)
  const manifest = { name, version, description, license, type: "module", bin: { berth: PROGRAM }, engines }
  await writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`)
  const inputs = [...Object.keys(metafile.inputs), ...SENT_FILES]
  const folders = packageFolders([...bundledInputs(metafile), ...SENT_FILES])
  await writeFile(join(folder, LICENCES), await licencesOf(folders))
  const packages = await Promise.all(folders.map((path) => manifestOf(join(ROOT, path))))
  return { inputs, packages: new Set(packages.map(packageId)) }
}

function packageId({ name, version }: Pick<Manifest, "name" | "version">): string {
  return `${name}@${version}`
}

async function manifestOf(folder: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as Manifest
}

/** Paths of the modules that are in the bundle. A metafile also has those that were left out as unused. */
function bundledInputs({ outputs }: Metafile): string[] {
  return Object.values(outputs).flatMap((output) => Object.keys(output.inputs))
}

/** Folders of the packages that these files belong to. */
function packageFolders(inputs: readonly string[]): string[] {
  return [...new Set(inputs.flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []))].sort()
}

async function licencesOf(folders: readonly string[]): Promise<string> {
  const texts = await Promise.all(folders.map(licenceOf))
  return [...new Set(texts)].join(`\n${"-".repeat(80)}\n\n`)
}

async function licenceOf(path: string): Promise<string> {
  const folder = join(ROOT, path)
  const { name, version, licenses = [], ...manifest } = await manifestOf(folder)
  const license = manifest.license ?? (licenses.map(({ type }) => type).join(" OR ") || "none")
  const choices = license.replace(/[()]/g, "").split(" OR ")
  if (!choices.some((choice) => choice.split(" AND ").every((part) => ALLOWED.includes(part)))) {
    throw new Error(
      `${name} ${version} has the licence ${license}: look whether it may be given away, and allow it here`,
    )
  }
  const files = (await readdir(folder)).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file)).sort()
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")))
  return `${[`${name} ${version} (${license})`, ...texts.map((text) => text.trim())].join("\n\n")}\n`
}

/** As much of an SPDX document as is looked at. */
export interface Sbom {
  documentDescribes: string[]
  packages: { SPDXID: string; name: string; versionInfo: string }[]
  relationships: { spdxElementId: string; relatedSpdxElement: string }[]
}

/** npm's own list of what package-lock.json has, without what is not in the bundle. @throws Error when it lacks a package */
export async function sbomOf(packages: ReadonlySet<string>): Promise<Sbom> {
  const { stdout } = await promisify(execFile)("npm", NPM_SBOM, { cwd: ROOT, maxBuffer: 64 * 1024 ** 2 })
  const all = JSON.parse(stdout) as Sbom
  const idOf = ({ name, versionInfo }: Sbom["packages"][number]) => packageId({ name, version: versionInfo })
  const kept = all.packages.filter((one) => packages.has(idOf(one)) || all.documentDescribes.includes(one.SPDXID))
  const known = new Set(kept.map(idOf))
  const lacking = [...packages].filter((id) => !known.has(id))
  if (lacking.length > 0) throw new Error(`npm sbom has none of what is bundled of ${lacking.join(", ")}`)
  const ids = new Set([SPDX_DOCUMENT, ...kept.map(({ SPDXID }) => SPDXID)])
  const relationships = all.relationships.filter(
    ({ spdxElementId, relatedSpdxElement }) => ids.has(spdxElementId) && ids.has(relatedSpdxElement),
  )
  return { ...all, packages: kept, relationships }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: { out: { type: "string", default: join(ROOT, "dist") }, sbom: { type: "string" } },
  })
  const { packages } = await bundle(values.out)
  if (values.sbom !== undefined)
    await writeFile(values.sbom, `${JSON.stringify(await sbomOf(packages), undefined, 2)}\n`)
}
