import { mkdir, readFile, rm, writeFile } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { promisify } from "node:util"
import { gzip } from "node:zlib"
import { build, type Metafile } from "esbuild"
import { ASSETS, CONSOLE_PATH } from "../src/api/console/paths.ts"

/** Builds the web console: `index.html`, and its scripts and styles under `assets/`, named by a hash of their content. */

const ROOT = dirname(import.meta.dirname)
const ENTRY = "src/console/main.tsx"

/**
 * Largest sizes, compressed by gzip, bytes: of what a browser loads first, and of what it loads later, with the terminal as
 * the largest part.
 */
export const CONSOLE_LIMITS = { first: 88 * 1024, later: 116 * 1024 }

export interface BuiltConsole {
  metafile: Metafile
  /** Sizes, compressed by gzip, bytes. */
  compressed: typeof CONSOLE_LIMITS
}

/** Writes the console into a folder, and replaces the folder's content. @throws Error if it is larger than its limits */
export async function buildConsole(folder: string): Promise<BuiltConsole> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  const { metafile, outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: [ENTRY],
    outdir: join(folder, ASSETS),
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    tsconfig: "src/console/tsconfig.json",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "browser",
    target: ["chrome120", "firefox120", "safari17"],
    minify: true,
    legalComments: "none",
    logLevel: "warning",
    metafile: true,
    write: false,
  })
  await mkdir(join(folder, ASSETS))
  for (const { path, contents } of outputFiles) await writeFile(path, contents)
  const [script] = Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint === ENTRY) ?? []
  const style = outputFiles.find(({ path }) => path.endsWith(".css"))?.path
  if (script === undefined || style === undefined) throw new Error(`${ENTRY} gave no script or no style sheet`)
  const first = filesBehind(script, metafile)
  // The browser then asks for them together with the script.
  const preloads = [...first].map((name) => `  <link rel="modulepreload" href="${assetAt(name)}">\n  `)
  const index = (await readFile(join(ROOT, "src", "console", "index.html"), "utf8"))
    .replace("main.tsx", assetAt(script))
    .replace("style.css", assetAt(style))
    .replace("</head>", `${preloads.slice(1).join("")}</head>`)
  await writeFile(join(folder, "index.html"), index)
  const isFirst = (path: string) => path === style || [...first].some((name) => path === join(ROOT, name))
  const compressed = { first: await sizeOf(Buffer.from(index)), later: 0 }
  for (const { path, contents } of outputFiles) compressed[isFirst(path) ? "first" : "later"] += await sizeOf(contents)
  for (const part of ["first", "later"] as const) requireSmall(part, compressed[part])
  return { metafile, compressed }
}

/** Returns a script with all that it imports before it runs. */
function filesBehind(script: string, { outputs }: Metafile, found = new Set<string>()): Set<string> {
  if (found.has(script)) return found
  found.add(script)
  const imports = outputs[script]?.imports ?? []
  for (const { path, kind } of imports)
    if (kind === "import-statement") filesBehind(path, { inputs: {}, outputs }, found)
  return found
}

async function sizeOf(content: Uint8Array): Promise<number> {
  return (await promisify(gzip)(content)).length
}

function requireSmall(part: keyof typeof CONSOLE_LIMITS, size: number): void {
  const limit = CONSOLE_LIMITS[part]
  if (size <= limit) return
  throw new Error(
    `what the console loads ${part} has ${size} bytes (gzip), more than its limit ${limit}: make it smaller`,
  )
}

function assetAt(path: string): string {
  return `${CONSOLE_PATH}/${ASSETS}/${basename(path)}`
}

if (import.meta.main) {
  const { compressed } = await buildConsole(join(ROOT, "dist", "console"))
  for (const part of ["first", "later"] as const)
    console.log(`${part} ${(compressed[part] / 1024).toFixed(1)} KiB of ${CONSOLE_LIMITS[part] / 1024} KiB (gzip)`)
}
