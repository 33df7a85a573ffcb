import { mkdir, readFile, rm, writeFile } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { promisify } from "node:util"
import { gzip } from "node:zlib"
import { build, type Metafile } from "esbuild"
import { ASSETS, CONSOLE_PATH } from "../src/api/console/paths.ts"

/** Builds the web console: `index.html`, and its scripts and styles under `assets/`, named by a hash of their content. */

const ROOT = dirname(import.meta.dirname)
const ENTRY = "src/console/main.tsx"

/** Largest size of all files of the console together, compressed by gzip, bytes. */
export const CONSOLE_LIMIT = 108 * 1024

export interface BuiltConsole {
  metafile: Metafile
  /** Size of all files together, compressed by gzip, bytes. */
  compressed: number
}

/** Writes the console into a folder, and replaces the folder's content. @throws Error if it is larger than the limit */
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
  const index = (await readFile(join(ROOT, "src", "console", "index.html"), "utf8"))
    .replace("main.tsx", assetAt(script))
    .replace("style.css", assetAt(style))
  await writeFile(join(folder, "index.html"), index)
  const sizes = await Promise.all(
    [Buffer.from(index), ...outputFiles.map(({ contents }) => contents)].map(
      async (content) => (await promisify(gzip)(content)).length,
    ),
  )
  const compressed = sizes.reduce((sum, size) => sum + size, 0)
  if (compressed > CONSOLE_LIMIT)
    throw new Error(`the console has ${compressed} bytes (gzip), more than its limit ${CONSOLE_LIMIT}: make it smaller`)
  return { metafile, compressed }
}

function assetAt(path: string): string {
  return `${CONSOLE_PATH}/${ASSETS}/${basename(path)}`
}

if (import.meta.main) {
  const { compressed } = await buildConsole(join(ROOT, "dist", "console"))
  console.log(`${(compressed / 1024).toFixed(1)} KiB of ${CONSOLE_LIMIT / 1024} KiB (gzip)`)
}
