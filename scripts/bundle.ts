import { execFile } from "node:child_process"
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { parseArgs, promisify } from "node:util"
import { type BuildOptions, build, type Metafile, type Plugin } from "esbuild"
import { buildConsole } from "./console.ts"

/**
 * Builds `dist/`: the program, which needs nothing of node_modules, and the agent as one file. Next to
 * them are the files that they read, at the same paths as in the repository (`src/core/package.ts`). Run it by `npm run
 * build`, or `scripts/bundle.ts --out FOLDER`. `--cli FOLDER` also writes the package of the command for people. `--sbom FILE` also writes the list of the bundled packages (SPDX, JSON),
 * which no scanner can read from a single file.
 */

const ROOT = dirname(import.meta.dirname)
const PROGRAM = "berth.mjs"
/** Folder beside the program with what is loaded only when it is needed. */
const PARTS = "parts"
const AGENT = "agent.mjs"
const LICENCES = "THIRD-PARTY-LICENCES.txt"

/** The command `berth` for people, as a package of npm without dependencies. */
const CLI = { name: "@berth-dev/cli", file: "berth.mjs", node: "22.12" }

/** Files of its own package that the program reads at run time. */
const READ_FILES = ["src/market/catalogue/data", "src/api/docs/page", "LICENSE"]

/** Files of packages that the program sends to browsers unchanged, and the licences of their contents. */
const SENT_FILES = ["swagger-ui-bundle.js", "swagger-ui-bundle.js.LICENSE.txt", "swagger-ui.css"].map(
  (file) => `node_modules/swagger-ui-dist/${file}`,
)

/** Id of the document itself in SPDX. */
const SPDX_DOCUMENT = "SPDXRef-DOCUMENT"
/** Without --omit=dev: that also omits packages that are both a dependency and a development dependency. */
const NPM_SBOM = ["sbom", "--sbom-format=spdx", "--sbom-type=application", "--package-lock-only"]

/** Licences that may be distributed inside an image under Apache-2.0. */
const ALLOWED = ["Apache-2.0", "MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "BlueOak-1.0.0", "Unlicense"]

/**
 * Modules that only commands other than `agent` load. Without them the agent's file is a tenth of the program. The
 * smallest VMs have half a gigabyte, and a process holds its file's whole text in memory.
 */
const NOT_THE_AGENTS = [
  ...["./operator/main.ts", "./api/main.ts", "./clouds/registry.ts", "./connect.ts"],
  ...["./core/identity/key-manifest.ts", "./core/identity/login.ts", "./core/identity/sealing-keys.ts"],
]

/** Variables that CommonJS modules expect. */
const COMMONJS = [
  "import { createRequire } from 'node:module'",
  "const require = createRequire(import.meta.url)",
  "const { dirname: __dirname, filename: __filename } = import.meta",
].join("\n")

interface Manifest {
  name: string
  version: string
  license?: string
  /** Older packages' form of `license`. */
  licenses?: { type: string }[]
  description?: string
  engines?: object
  repository?: unknown
}

/**
 * Escapes the characters of a bundle that are not ASCII. esbuild leaves them in regular expressions. With a single one,
 * V8 holds the whole text of a file with two bytes for each character.
 */
const ASCII_ONLY: Plugin = {
  name: "ascii-only",
  setup({ onEnd }) {
    onEnd(async ({ metafile }) => {
      const files = Object.keys(metafile?.outputs ?? {}).filter((path) => path.endsWith(".mjs"))
      await Promise.all(files.map((path) => makeAscii(join(ROOT, path))))
    })
  },
}

async function makeAscii(file: string): Promise<void> {
  const text = await readFile(file, "utf8")
  const unicode = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`
  await writeFile(file, text.replace(/[\u0080-\uffff]/g, unicode))
}

/** Options that bundle a program into one file. */
export const ONE_FILE = {
  absWorkingDir: ROOT,
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node24",
  banner: { js: `#!/usr/bin/env node\n${COMMONJS}` },
  // Optional addons of ssh2.
  external: ["*.node", "cpu-features"],
  plugins: [ASCII_ONLY],
  // Makes the file smaller, and keeps the names of functions in stack traces.
  minifyWhitespace: true,
  minifySyntax: true,
  keepNames: true,
  legalComments: "none",
  logLevel: "warning",
  // The plugin reads it.
  metafile: true,
} as const satisfies BuildOptions

/**
 * Keeps a CommonJS package that another imports dynamically out of the parts, because a part of it would export only
 * `default` (`checkParts`). Google's library needs this one behind a proxy.
 */
const NO_PART: Plugin = {
  name: "no-part",
  setup({ onLoad }) {
    onLoad({ filter: /\/gaxios\.js$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8")
      const contents = text.replace(/import\(('https-proxy-agent')\)/, "Promise.resolve(require($1))")
      return { contents }
    })
  },
}

/**
 * Options that bundle a program into one file and a folder of parts, one for each group of modules that are imported
 * dynamically. A process holds the text of what it has loaded: the SDKs of three clouds are most of it, and few
 * installations use all.
 *
 * A part that is a CommonJS package exports only `default`. Node.js gives such a package both, so sources take its names
 * from there: `const { default: sdk } = await import("@aws-sdk/client-ec2")`.
 */
export const IN_PARTS = {
  ...ONE_FILE,
  plugins: [ASCII_ONLY, NO_PART],
  splitting: true,
  chunkNames: `${PARTS}/[name]-[hash]`,
  outExtension: { ".js": ".mjs" },
} as const satisfies BuildOptions

export interface Bundled {
  /** Paths of all bundled modules, in the repository. */
  inputs: string[]
  /** Bundled packages, as `name@version`. */
  packages: Set<string>
}

/**
 * Writes the bundle into a folder, and replaces the folder's content. @throws Error for a licence that is not in the
 * allowed list
 */
export async function bundle(folder: string): Promise<Bundled> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const mapped = { sourcemap: true, sourcesContent: false }
  const { metafile } = await build({
    ...{ ...IN_PARTS, ...mapped },
    entryPoints: [{ in: "src/main.ts", out: basename(PROGRAM, ".mjs") }],
    outdir: folder,
  })
  await checkParts(metafile)
  await bundleAgent(join(folder, AGENT), mapped)
  for (const file of [...READ_FILES, ...SENT_FILES]) await cp(join(ROOT, file), join(folder, file), { recursive: true })
  const { name, version, description, license, engines } = await manifestOf(ROOT)
  const manifest = { name, version, description, license, type: "module", bin: { berth: PROGRAM }, engines }
  await writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`)
  const { metafile: ofConsole } = await buildConsole(join(folder, "console"))
  const inputs = [metafile, ofConsole].flatMap((each) => Object.keys(each.inputs)).concat(SENT_FILES)
  const folders = packageFolders([...bundledInputs(metafile), ...bundledInputs(ofConsole), ...SENT_FILES])
  await writeFile(join(folder, LICENCES), await licencesOf(folders))
  const packages = await Promise.all(folders.map((path) => manifestOf(join(ROOT, path))))
  return { inputs, packages: new Set(packages.map(packageId)) }
}

/** Writes the agent as one file. */
export async function bundleAgent(outfile: string, more: BuildOptions = {}): Promise<void> {
  const external = [...ONE_FILE.external, ...NOT_THE_AGENTS]
  await build({ ...ONE_FILE, ...more, entryPoints: ["src/main.ts"], outfile, external })
}

/**
 * Checks that each module finds what it imports dynamically from CommonJS packages: they export only `default` in a part.
 * @throws Error if a package imports one, or if a source takes a name
 */
async function checkParts({ inputs }: Metafile): Promise<void> {
  for (const [importer, { imports }] of Object.entries(inputs)) {
    const found = imports.find(({ kind, path }) => kind === "dynamic-import" && inputs[path]?.format === "cjs")
    if (found === undefined) continue
    if (importer.includes("node_modules"))
      throw new Error(`${importer} imports the CommonJS package ${found.path} dynamically: add it to NO_PART`)
    const [named] = namedImports(await readFile(join(ROOT, importer), "utf8"))
    if (named !== undefined)
      throw new Error(`${importer} imports ${found.path} dynamically by a name: take \`default\` instead of ${named}`)
  }
}

/** Returns the names, other than `default`, that a source takes from modules that it imports dynamically. Pure. */
export function namedImports(source: string): string[] {
  const declarations = source.matchAll(/const ([{[][^=]+) = await (?:import\(|Promise\.all\(\[[^;]*?import\()/g)
  const patterns = [...declarations].flatMap(([, names = ""]) => [...names.matchAll(/\{([^}]*)\}/g)])
  const names = patterns.flatMap(([, inner = ""]) => inner.split(",").map((name) => name.trim()))
  return names.filter((name) => name !== "" && !/^default\b/.test(name))
}

/**
 * Writes the package of the command `berth` for people into a folder, and replaces the folder's content. `npm pack`
 * makes the tarball of it. @throws Error for a licence that is not in the allowed list
 */
export async function bundleCli(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const { metafile } = await build({
    ...ONE_FILE,
    entryPoints: ["src/cli/main.ts"],
    target: `node${CLI.node}`,
    outfile: join(folder, CLI.file),
  })
  const { version, license, repository } = await manifestOf(ROOT)
  const manifest = {
    name: CLI.name,
    version,
    description: "Runs container jobs on the cheapest cloud VM that fits: the command line of Berth.",
    license,
    ...(repository !== undefined && { repository }),
    type: "module",
    bin: { berth: CLI.file },
    files: [CLI.file, LICENCES],
    engines: { node: `>=${CLI.node}` },
  }
  await writeFile(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`)
  await writeFile(join(folder, LICENCES), await licencesOf(packageFolders(bundledInputs(metafile))))
  await cp(join(ROOT, "LICENSE"), join(folder, "LICENSE"))
  await cp(join(ROOT, "docs", "cli.md"), join(folder, "README.md"))
}

function packageId({ name, version }: Pick<Manifest, "name" | "version">): string {
  return `${name}@${version}`
}

async function manifestOf(folder: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as Manifest
}

/** Returns the paths of the bundled modules. A metafile also has those that were left out as unused. */
function bundledInputs({ outputs }: Metafile): string[] {
  return Object.values(outputs).flatMap((output) => Object.keys(output.inputs))
}

/** Returns the folders of the packages that these files belong to. */
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
      `${name} ${version} has the licence ${license}: check if it may be distributed, and add it to the allowed licences here`,
    )
  }
  const files = (await readdir(folder)).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file)).sort()
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")))
  return `${[`${name} ${version} (${license})`, ...texts.map((text) => text.trim())].join("\n\n")}\n`
}

/** The fields of an SPDX document that are read. */
export interface Sbom {
  documentDescribes: string[]
  packages: { SPDXID: string; name: string; versionInfo: string }[]
  relationships: { spdxElementId: string; relatedSpdxElement: string }[]
}

/**
 * Returns npm's own list of the packages in package-lock.json, reduced to the bundled ones. @throws Error if it lacks a
 * bundled package
 */
export async function sbomOf(packages: ReadonlySet<string>): Promise<Sbom> {
  const { stdout } = await promisify(execFile)("npm", NPM_SBOM, { cwd: ROOT, maxBuffer: 64 * 1024 ** 2 })
  const all = JSON.parse(stdout) as Sbom
  const idOf = ({ name, versionInfo }: Sbom["packages"][number]) => packageId({ name, version: versionInfo })
  const kept = all.packages.filter((one) => packages.has(idOf(one)) || all.documentDescribes.includes(one.SPDXID))
  const known = new Set(kept.map(idOf))
  const lacking = [...packages].filter((id) => !known.has(id))
  if (lacking.length > 0) throw new Error(`npm sbom lacks the bundled packages ${lacking.join(", ")}`)
  const ids = new Set([SPDX_DOCUMENT, ...kept.map(({ SPDXID }) => SPDXID)])
  const relationships = all.relationships.filter(
    ({ spdxElementId, relatedSpdxElement }) => ids.has(spdxElementId) && ids.has(relatedSpdxElement),
  )
  return { ...all, packages: kept, relationships }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      out: { type: "string", default: join(ROOT, "dist") },
      cli: { type: "string" },
      sbom: { type: "string" },
    },
  })
  const { packages } = await bundle(values.out)
  if (values.cli !== undefined) await bundleCli(values.cli)
  if (values.sbom !== undefined)
    await writeFile(values.sbom, `${JSON.stringify(await sbomOf(packages), undefined, 2)}\n`)
}
