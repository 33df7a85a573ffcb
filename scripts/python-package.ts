import { execFile } from "node:child_process"
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { basename, dirname, join, resolve } from "node:path"
import { parseArgs, promisify } from "node:util"
import { openApiDocument } from "../src/api/document.ts"
import { JOB_CLOUDS } from "../src/clouds/definitions.ts"
import { LIMITS } from "../src/core/apis/field-limits.ts"
import { pythonEnvironment } from "../test/python-environment.ts"
import { pythonVersion } from "./version.ts"

/**
 * Builds the Python package `berth-jobs`: `scripts/python-package.ts --out FOLDER` writes a wheel and an sdist. The
 * sources in `python/` lack three parts, which this adds:
 *
 * - `berth/_api`: requests, answers and records, by openapi-python-client from the OpenAPI document,
 * - `berth/_sync`: the blocking twin of `berth/aio`, by unasync,
 * - `berth/_built.py`: the version of package.json in Python's spelling, and limits of the API.
 */

const run = promisify(execFile)
const ROOT = dirname(import.meta.dirname)
const SOURCES = join(ROOT, "python")

/** Operations that the package calls. */
const OPERATIONS: readonly string[] = [
  ...["createJob", "listJobs", "getJob", "cancelJob", "getJobLogs", "getJobTimeline", "getJobUsage"],
  ...["createArray", "getArray", "listArrayIndexes", "cancelArray"],
  ...["listOffers", "putUpload", "getUpload", "whoAmI"],
]

/** Words of the asynchronous code, and those of its blocking twin. */
const SYNC_WORDS: Readonly<Record<string, string>> = {
  ...{ AsyncClient: "Client", aread: "read", aclose: "close", aiter_bytes: "iter_bytes" },
  ...{ _async_runtime: "_sync_runtime" },
}

type Json = Record<string, unknown>

/** Returns the folder with the Python programs of the build. They are installed from PyPI once. */
export function pythonBuildPrograms(): Promise<string> {
  return pythonEnvironment("openapi-python-client", join(SOURCES, "requirements.txt"))
}

/**
 * Writes the complete sources of the package into a new folder.
 * @param document OpenAPI document that the package is generated from
 * @throws Error if the document lacks an operation, or the generator warns
 */
export async function writePythonSources(out: string, document: object = theDocument()): Promise<void> {
  const programs = await pythonBuildPrograms()
  await cp(SOURCES, out, { recursive: true })
  await cp(join(ROOT, "LICENSE"), join(out, "LICENSE"))
  const packaged = join(out, "src", "berth")
  await writeFile(join(packaged, "_built.py"), await builtFacts())
  await generateApi(document, out, programs)
  const files = (await readdir(join(packaged, "aio"))).map((name) => join(packaged, "aio", name))
  const code = `import json, sys, unasync
files, words = map(json.loads, sys.argv[1:])
unasync.unasync_files(files, [unasync.Rule("/aio/", "/_sync/", words)])`
  await run(join(programs, "python"), ["-c", code, JSON.stringify(files), JSON.stringify(SYNC_WORDS)])
}

/** Paths of the built package. */
export interface PackedPython {
  wheel: string
  /** It has all generated code. */
  sdist: string
}

/** Builds the wheel and the sdist into a folder, which may have other files. */
export async function packPython(folder: string): Promise<PackedPython> {
  const scratch = await mkdtemp(join(tmpdir(), "berth-python-"))
  try {
    const sources = join(scratch, "sources")
    await writePythonSources(sources)
    return await packPythonSources(sources, folder)
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** Builds the wheel and the sdist of sources that are complete. */
export async function packPythonSources(sources: string, folder: string): Promise<PackedPython> {
  const args = ["build", "-d", resolve(folder)]
  // It prints the path of each file to standard error, without colors if that is no terminal.
  const { stdout, stderr } = await run(join(await pythonBuildPrograms(), "hatchling"), args, { cwd: sources })
  const path = (end: string): string => {
    const name = `${stdout}${stderr}`.split(/\s+/).find((word) => word.endsWith(end))
    if (name === undefined) throw new Error(`hatchling has built no ${end}: ${stdout}${stderr}`)
    return join(folder, basename(name))
  }
  return { wheel: path(".whl"), sdist: path(".tar.gz") }
}

function theDocument(): object {
  return openApiDocument(JOB_CLOUDS)
}

/** Returns the module of what is declared elsewhere in the repository. */
async function builtFacts(): Promise<string> {
  const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
  return [
    '"""Written by the build: the version of Berth, and limits of its API."""',
    "",
    `__version__ = ${JSON.stringify(pythonVersion(version))}`,
    `WORKDIR_BYTES = ${LIMITS.workdirBytes}`,
    `WORKDIR_ENTRIES = ${LIMITS.workdirEntries}`,
    `ARRAY_NAME_LENGTH = ${LIMITS.jobArrayName}`,
    "",
  ].join("\n")
}

async function generateApi(document: object, out: string, programs: string): Promise<void> {
  const path = join(out, "openapi.json")
  await writeFile(path, JSON.stringify(partOf(document as Json)))
  const { stdout, stderr } = await run(join(programs, "openapi-python-client"), [
    ...["generate", "--path", path, "--config", join(SOURCES, "generator.yaml"), "--meta", "none"],
    ...["--custom-template-path", join(SOURCES, "templates")],
    ...["--output-path", join(out, "src", "berth", "_api"), "--fail-on-warning"],
  ])
  const warning = /.*(warn|error|skipping|unsupported).*/i.exec(`${stdout}${stderr}`)
  if (warning !== null) throw new Error(`openapi-python-client loses a part of the document: ${warning[0]}`)
  await rm(path)
}

/**
 * Returns the part of the document that the package needs: its operations, with JSON bodies and without errors, which
 * have one form. @throws Error if an operation is missing
 */
function partOf(document: Json): Json {
  const paths: Record<string, Json> = {}
  const missing = new Set(OPERATIONS)
  for (const [path, item] of Object.entries(document["paths"] as Record<string, Json>))
    for (const [method, value] of Object.entries(item)) {
      const operation = value as Json
      const id = operation["operationId"]
      if (typeof id !== "string" || !missing.delete(id)) continue
      paths[path] = { ...paths[path], [method]: jsonForm(operation) }
    }
  if (missing.size > 0) throw new Error(`the OpenAPI document lacks what the Python package calls: ${[...missing]}`)
  const schemas = schemasOf(document)
  const used = usedSchemas(paths, schemas)
  const { components, ...rest } = document
  return open({ ...rest, paths, components: { ...(components as Json), responses: {}, schemas: used } }) as Json
}

/** Returns the operation with its successes and the JSON form of its body. */
function jsonForm({ responses, requestBody, parameters, ...rest }: Json): Json {
  const content = (requestBody as Json | undefined)?.["content"] as Json | undefined
  const { "application/yaml": _, ...json } = content ?? {}
  const successes = Object.entries(responses as Json).filter(([status]) => status.startsWith("2"))
  return {
    ...rest,
    parameters,
    responses: Object.fromEntries(successes),
    ...(content !== undefined && { requestBody: { ...(requestBody as Json), content: json } }),
  }
}

function schemasOf(document: Json): Json {
  return (document["components"] as Json)["schemas"] as Json
}

/** Returns the schemas that the value refers to, also through others. */
function usedSchemas(value: unknown, schemas: Json): Json {
  const used: Json = {}
  const queue = [value]
  for (const next of queue)
    for (const [, name = ""] of JSON.stringify(next).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      if (Object.hasOwn(used, name)) continue
      used[name] = schemas[name]
      queue.push(schemas[name])
    }
  return used
}

/**
 * Returns the schema open to further fields: the API itself rejects those that it does not know, and a later version may
 * send more.
 */
function open(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(open)
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value).filter(
    // Times stay texts: Python 3.10 can't read all of them.
    ([name, field]) =>
      !(name === "additionalProperties" && field === false) && !(name === "format" && field === "date-time"),
  )
  return Object.fromEntries(entries.map(([name, field]) => [name, open(field)]))
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { out: { type: "string" }, sources: { type: "string" } } })
  if (values.sources !== undefined) await writePythonSources(resolve(values.sources))
  else console.log(Object.values(await packPython(resolve(values.out ?? "dist"))).join("\n"))
}
