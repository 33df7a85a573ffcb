import { type Command, Option } from "commander"
import { dump } from "js-yaml"
import { BerthClient, type Credential } from "../client/client.ts"
import { type ConditionRecord, troublesOf } from "../client/conditions.ts"
import { accountUrl, type Chosen, type ConfigFile, chooseContext, type Environment, projectUrl } from "./context.ts"
import { EXIT, Failure } from "./exit.ts"
import type { LastSubmissions, Submitted } from "./last.ts"
import { type Column, formatTable } from "./table.ts"
import { shown, type Terminal } from "./terminal.ts"

const FORMATS = ["table", "wide", "json", "yaml", "name"] as const

/** Options that every command has. */
export interface GlobalOptions {
  context?: string
  project?: string
  output?: (typeof FORMATS)[number]
  json?: boolean
  quiet?: boolean
  verbose?: boolean
}

/** Parts of the process that commands use. */
export interface Process {
  environment: Environment
  config: ConfigFile
  last: LastSubmissions
  terminal: Terminal
  /** Aborts at Ctrl-C, and at a signal that ends the command. The reason is the exit code. */
  signal: AbortSignal
  version: string
  /** Returns the credential of a context, with a renewed token if the present one has ended. */
  credentialOf: (chosen: Chosen, rejected?: string) => Promise<Credential | undefined>
}

export interface Declaration<Options> {
  /** Name and arguments, such as `show <job>`. */
  usage: string
  summary: string
  /** Rest of the help, after the summary. */
  more?: string
  /** Commands with the reason to use them, for --help. */
  examples: readonly (readonly [command: string, purpose: string])[]
  options?: readonly Option[]
  /** Exit code for a wrong command line. */
  usageExit?: number
  /** Sentence after an error of the command line, besides the one about --help. */
  usageHint?: string
  /** @returns the exit code; undefined for 0 */
  run: (call: Call<Options>) => Promise<number | undefined> | number | undefined
}

/** Adds commands to a program, and remembers how the one that runs has ended. */
export class Commands {
  readonly #process: Process
  exitCode = 0

  constructor(process: Process) {
    this.#process = process
  }

  add<Options = object>(parent: Command, declaration: Declaration<Options>): void {
    const { usage, summary, more, examples, options = [], usageExit = EXIT.usage, usageHint, run } = declaration
    const command = parent
      .command(usage)
      .summary(summary)
      .description(more === undefined ? summary : `${summary}\n\n${more}`)
    for (const option of options) command.addOption(option)
    for (const option of globalOptions()) command.addOption(option)
    command.addHelpText("after", exampleText(examples))
    const toHelp = `${pathOf(command)} --help lists the flags and examples.`
    command.showHelpAfterError(usageHint === undefined ? toHelp : `${usageHint} ${toHelp}`)
    command.exitOverride((error) => {
      throw new Failure(error.exitCode === 0 ? 0 : usageExit, "")
    })
    command.action(async (...given: unknown[]) => {
      const args = given
        .slice(0, -2)
        .flat()
        .filter((arg) => arg !== undefined) as string[]
      const call = new Call(this.#process, args, command.optsWithGlobals<Options & GlobalOptions>())
      this.exitCode = (await run(call)) ?? 0
    })
  }

  /** Adds a command for programs, which the help does not show. */
  addHidden(parent: Command, usage: string, run: (call: Call<object>) => Promise<number>): void {
    parent.command(usage, { hidden: true }).action(async (args: string[]) => {
      this.exitCode = await run(new Call(this.#process, args, { quiet: true }))
    })
  }

  /** Adds a command that only has commands of its own, such as `context`. */
  group(parent: Command, name: string, summary: string): Command {
    const group = parent
      .command(name)
      .summary(summary)
      .description(summary)
      .exitOverride((error) => {
        throw new Failure(error.exitCode === 0 ? 0 : EXIT.usage, "")
      })
    return group.showHelpAfterError(`${pathOf(group)} --help lists the commands.`)
  }
}

/** Returns a command as it is typed, such as `berth cron ls`. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`
}

/** Returns the options that every command has. They may also come before the command. */
export function globalOptions(): Option[] {
  return [
    new Option("--context <name>", "context to use, instead of the current one").helpGroup("Global options:"),
    new Option("--project <id>", "project to use, instead of the context's").helpGroup("Global options:"),
    new Option("-o, --output <format>", "form of the result; default: table")
      .choices(FORMATS)
      .helpGroup("Global options:"),
    new Option("--json", "same as -o json: the records of the REST API, unchanged").helpGroup("Global options:"),
    new Option("--no-color", "no colors, as with the variable NO_COLOR").helpGroup("Global options:"),
    new Option("-q, --quiet", "no progress; lists show only names").helpGroup("Global options:"),
    new Option("-v, --verbose", "show each request").helpGroup("Global options:"),
  ]
}

function exampleText(examples: Declaration<object>["examples"]): string {
  const width = Math.max(...examples.map(([command]) => command.length))
  return `\nExamples:\n${examples.map(([command, purpose]) => `  ${command.padEnd(width)}  ${purpose}`).join("\n")}`
}

/** Record of the REST API that may have conditions. */
interface WithConditions {
  conditions?: ConditionRecord[]
}

/** One invocation of a command. */
export class Call<Options> {
  readonly #process: Process
  readonly args: readonly string[]
  readonly options: Options & GlobalOptions
  #reportedAt = Number.NEGATIVE_INFINITY

  constructor(process: Process, args: readonly string[], options: Options & GlobalOptions) {
    this.#process = process
    this.args = args
    this.options = options
    this.terminal.isVerbose = options.quiet !== true
  }

  get terminal(): Terminal {
    return this.#process.terminal
  }

  get signal(): AbortSignal {
    return this.#process.signal
  }

  get environment(): Environment {
    return this.#process.environment
  }

  get config(): ConfigFile {
    return this.#process.config
  }

  get version(): string {
    return this.#process.version
  }

  /** Returns the last submission from here to the project; undefined if there is none. */
  last(): Submitted | undefined {
    return this.#process.last.read(this.chosen().context)
  }

  /** Keeps a submission as the last one from here. */
  remember(submitted: Submitted): void {
    try {
      this.#process.last.write(this.chosen().context, submitted)
    } catch (error) {
      this.terminal.progress(this.terminal.noted("dim", `Later commands must name it: ${(error as Error).message}`))
    }
  }

  get format(): (typeof FORMATS)[number] {
    const { json, quiet, output = quiet === true ? "name" : "table" } = this.options
    return json === true ? "json" : output
  }

  /** True if standard output is for a program. */
  get isForProgram(): boolean {
    return this.format === "json" || this.format === "yaml"
  }

  /** Returns the context. @throws Failure if there is none */
  chosen(): Chosen {
    return chooseContext(this.config.read(), this.environment, this.options)
  }

  /** Returns a client of the project's operations. @param endsAtInterrupt false: its requests go on after Ctrl-C */
  client(chosen = this.chosen(), { endsAtInterrupt = true } = {}): BerthClient {
    return this.#clientOf(projectUrl(chosen.context), chosen, endsAtInterrupt)
  }

  /** Returns a client of the operations on organizations and projects. @throws Failure for an API key */
  accounts(chosen = this.chosen()): BerthClient {
    const { url, key } = chosen.context
    if (key !== undefined)
      throw new Failure(
        EXIT.forbidden,
        `Organizations and projects are for people, and this credential is an API key of one project. Run berth login ${url}.`,
      )
    return this.#clientOf(accountUrl(chosen.context), chosen)
  }

  #clientOf(baseUrl: string, chosen: Chosen, endsAtInterrupt = true): BerthClient {
    const { terminal, signal, version, credentialOf } = this.#process
    return new BerthClient({
      baseUrl,
      credential: (rejected) => credentialOf(chosen, rejected),
      userAgent: `berth-cli/${version} node/${process.versions.node}`,
      ...(endsAtInterrupt && { signal }),
      onRetry: ({ reason, seconds }) => this.#reportRetry(`${reason}; trying again in ${Math.ceil(seconds)} s`),
      ...(this.options.verbose === true && {
        onRequest: ({ method, url }: Request) => terminal.warn(terminal.noted("dim", `${method} ${url}`)),
      }),
    })
  }

  /** Reports a retry. Several requests at the same time often fail for one reason, so a second has one report. */
  #reportRetry(text: string): void {
    const now = performance.now()
    if (now - this.#reportedAt < 1000) return
    this.#reportedAt = now
    this.terminal.progress(this.terminal.noted("dim", `${text} ...`))
  }

  /** Prints records as a table with the troubles of their conditions, their names, or JSON or YAML without a change. */
  async print<Row>(rows: readonly Row[], columns: readonly Column<Row>[], nameOf: (row: Row) => string): Promise<void> {
    if (this.isForProgram) return this.printValue(rows)
    if (this.format === "name") return this.terminal.write(rows.map((row) => `${nameOf(row)}\n`).join(""))
    if (rows.length === 0) return
    await this.terminal.line(formatTable(rows, this.styledColumns(columns), this.format === "wide"))
    for (const row of rows)
      for (const sentence of troublesOf((row as WithConditions).conditions))
        this.terminal.progress(`${shown(nameOf(row))}: ${shown(sentence)}`)
  }

  /** Returns the columns with titles in the style of all tables. */
  styledColumns<Row>(columns: readonly Column<Row>[]): Column<Row>[] {
    return columns.map((column) => ({ ...column, title: this.terminal.styled("dim", column.title) }))
  }

  /** Prints a value as JSON, or as YAML with `-o yaml`. */
  printValue(value: unknown): Promise<void> {
    const text =
      this.format === "yaml"
        ? dump(value, { noRefs: true, lineWidth: 120 })
        : `${JSON.stringify(value, undefined, 2)}\n`
    return this.terminal.write(text)
  }
}

/** Returns a parser for an option that may be given several times. */
export function collectOption(value: string, before: string[] = []): string[] {
  return [...before, value]
}
