import { randomUUID } from "node:crypto"
import { mkdir, readFile, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { load } from "js-yaml"
import { Program } from "../harness/program-process.ts"

/** The part of GitHub's runner that runs an action of Node.js: https://docs.github.com/actions/reference/workflows-and-actions/metadata-syntax */

const FILE = join(import.meta.dirname, "..", "..", "action", "action.yml")

interface Action {
  inputs: Record<string, { description: string; required?: boolean; default?: string }>
  outputs: Record<string, { description: string }>
  runs: { using: string; main: string; post: string; "post-if": string }
}

export async function readAction(): Promise<Action> {
  return load(await readFile(FILE, "utf8")) as Action
}

/** Values of the contexts that expressions name, such as `github.run_id`. */
export type Contexts = Record<string, Record<string, unknown>>

/** Replaces each `${{ context.name }}`. @throws Error for any other expression */
export function evaluate(text: string, contexts: Contexts): string {
  return text.replace(/\$\{\{\s*(.*?)\s*\}\}/g, (_, expression: string) => {
    const [, context = "", name = ""] = /^([a-z]+)[.]([a-z_-]+)$/.exec(expression) ?? []
    const known = contexts[context]
    if (known === undefined) throw new Error(`the runner does not know the expression ${expression}`)
    return String(known[name] ?? "")
  })
}

export interface StepOptions {
  with: Record<string, string>
  /** Variables of the job, such as those of its OIDC token. */
  env?: Record<string, string>
  contexts: Contexts
  /** Id of the step in its job. */
  step?: string
  /** Folder of the runner, and of the checkout. */
  folder: string
}

/** End of a step. */
export interface StepEnd {
  code: number | null
  outputs: Record<string, string>
  state: Record<string, string>
  summary: string
  /** Output of both streams. */
  log: string
  /** Messages of the workflow commands `error`. */
  errors: string[]
}

/** A step that runs. */
export interface Step {
  program: Program
  ended: Promise<StepEnd>
}

/** Starts a step that uses the action. */
export async function startStep({
  with: given,
  env = {},
  contexts,
  step = "berth",
  folder,
}: StepOptions): Promise<Step> {
  const { inputs, runs } = await readAction()
  for (const name of Object.keys(given))
    if (inputs[name] === undefined) throw new Error(`the action has no input ${name}`)
  const values = Object.entries(inputs).map(([name, { default: usual = "" }]) => [
    `INPUT_${name.replaceAll(" ", "_").toUpperCase()}`,
    given[name] ?? evaluate(usual, contexts),
  ])
  const files = await runnerFiles(folder)
  const base = { PATH: process.env["PATH"] ?? "", HOME: folder, RUNNER_TEMP: folder, GITHUB_ACTION: step }
  const variables = { ...base, ...env, ...files, ...Object.fromEntries(values) }
  const program = new Program("action", [join(dirname(FILE), runs.main)], variables)
  const ended = program.ended.then(async ({ code }) => ({ code, ...(await resultOf(files, program.output)) }))
  return { program, ended }
}

/** Runs the step `post` of the action after a cancelled workflow. */
export async function runPost(
  { with: given, env = {}, folder }: StepOptions,
  { state }: Pick<StepEnd, "state">,
): Promise<{ code: number | null; log: string }> {
  const { runs } = await readAction()
  if (runs["post-if"] !== "cancelled()") throw new Error(`the runner does not know the condition ${runs["post-if"]}`)
  const named = (prefix: string, values: Record<string, string>) =>
    Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}_${name}`, value]))
  const inputs = named(
    "INPUT",
    Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toUpperCase(), value])),
  )
  const variables = {
    PATH: process.env["PATH"] ?? "",
    RUNNER_TEMP: folder,
    ...env,
    ...inputs,
    ...named("STATE", state),
  }
  const program = new Program("post", [join(dirname(FILE), runs.post)], variables)
  const { code } = await program.ended
  return { code, log: program.output }
}

async function runnerFiles(folder: string) {
  const own = join(folder, randomUUID())
  await mkdir(own)
  const files = {
    GITHUB_OUTPUT: join(own, "output"),
    GITHUB_STATE: join(own, "state"),
    GITHUB_STEP_SUMMARY: join(own, "summary"),
  }
  for (const path of Object.values(files)) await writeFile(path, "")
  return files
}

async function resultOf(files: Awaited<ReturnType<typeof runnerFiles>>, log: string): Promise<Omit<StepEnd, "code">> {
  const [outputs, state, summary] = await Promise.all([
    readFile(files.GITHUB_OUTPUT, "utf8").then(valuesIn),
    readFile(files.GITHUB_STATE, "utf8").then(valuesIn),
    readFile(files.GITHUB_STEP_SUMMARY, "utf8"),
  ])
  return { outputs, state, summary, log, errors: errorsIn(log) }
}

/** Returns the values of a file of the runner, in the form with delimiters. */
function valuesIn(text: string): Record<string, string> {
  const found = [...text.matchAll(/^([^\n<]+)<<(\S+)\n([\s\S]*?)\n\2$/gm)]
  return Object.fromEntries(found.map(([, name = "", , value = ""]) => [name, value]))
}

/** Returns the errors that the runner shows: commands between `stop-commands` and its token are text. */
function errorsIn(log: string): string[] {
  let stopped: string | undefined
  const errors: string[] = []
  for (const line of log.split("\n")) {
    const [, command, value = ""] = /^::([\w-]+)(?: [^:]*)?::(.*)$/.exec(line) ?? []
    if (stopped !== undefined) stopped = line === `::${stopped}::` ? undefined : stopped
    else if (command === "stop-commands") stopped = value
    else if (command === "error")
      errors.push(value.replaceAll("%0A", "\n").replaceAll("%0D", "\r").replaceAll("%25", "%"))
  }
  return errors
}
