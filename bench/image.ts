import { readFile } from "node:fs/promises"
import { basename, join } from "node:path"
import { build } from "esbuild"
import { IN_PARTS } from "../scripts/bundle.ts"

const ROOT = join(import.meta.dirname, "..")

/** Folder within the repository, whose files the bundled programs read. Git ignores it. */
const FOLDER = join(ROOT, ".berth", "bench")

const bundles = new Map<string, Promise<string>>()

/** A program as the image has it. */
export interface ImageProgram {
  /** Path of the bundle. */
  script: string
  nodeOptions: string[]
}

/**
 * Bundles a program as in the image, once in this process, with the options of the image's entry point. Node.js needs
 * some 50 MiB more for a program that is not bundled, and seconds of CPU more for its start.
 */
export async function asInImage(script: string): Promise<ImageProgram> {
  const name = basename(script, ".ts")
  const outdir = join(FOLDER, name)
  const file = join(outdir, `${name}.mjs`)
  const bundle = bundles.get(script) ?? build({ ...IN_PARTS, entryPoints: [script], outdir }).then(() => file)
  bundles.set(script, bundle)
  return { script: await bundle, nodeOptions: await nodeOptions() }
}

async function nodeOptions(): Promise<string[]> {
  // The Dockerfile's last stage is operator and façade.
  const dockerfile = await readFile(join(ROOT, "Dockerfile"), "utf8")
  const [, entryPoint] = [...dockerfile.matchAll(/^ENTRYPOINT (\[.+\])$/gm)].at(-1) ?? []
  if (entryPoint === undefined) throw new Error("the Dockerfile has no ENTRYPOINT in the form of a list")
  return (JSON.parse(entryPoint) as string[]).slice(1, -1)
}
