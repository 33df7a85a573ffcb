import { Command, InvalidArgumentError, Option } from "commander"

/** One option of a program. Its field in the table is its flag in camelCase, as commander derives it. */
export interface OptionRow {
  /** Flag and placeholder, such as `--port <number>`. */
  flag: string
  /** Environment variable, which counts if the flag is absent. */
  env?: string
  about: string
  /** Reads the text. Absent: the text is the value. @throws InvalidArgumentError */
  parse?: (text: string) => unknown
  /** The only values that are allowed. */
  choices?: readonly string[]
  /** Value if flag and variable are absent. */
  default?: unknown
  /** True: the program ends with an error if flag and variable are absent. */
  isRequired?: true
  /** Field of an option that can't be given together with this one. */
  conflicts?: string
  /** True: the value may hold a secret, so no error quotes it. */
  isSecret?: true
}

/** Options by field, in the order of the help. */
export type OptionTable = Readonly<Record<string, OptionRow>>

type ValueOf<Row> = Row extends { parse: (text: string) => infer Value }
  ? Value
  : Row extends { choices: readonly (infer Choice)[] }
    ? Choice
    : string

type AlwaysPresent = { isRequired: true } | { default: unknown }

/** Values of a table's options. Those without a default, which need not be given, are optional. */
export type ValuesOf<Table> = {
  -readonly [Field in keyof Table as Table[Field] extends AlwaysPresent ? Field : never]: ValueOf<Table[Field]>
} & {
  -readonly [Field in keyof Table as Table[Field] extends AlwaysPresent ? never : Field]?: ValueOf<Table[Field]>
}

/** Prints an error and ends the process. */
export type Refuse = (message: string) => never

/** Returns a command with the options of a table. It calls `act` with their values. */
export function buildCommand<Table extends OptionTable>(
  name: string,
  about: string,
  table: Table,
  act: (values: ValuesOf<Table>, refuse: Refuse) => void,
): Command {
  const command = new Command(name).description(about)
  for (const row of Object.values(table)) command.addOption(toOption(row))
  return command.action(() => {
    const refuse: Refuse = (message) => command.error(message)
    act(valuesIn(command, table, refuse), refuse)
  })
}

/** Returns commander's option of a row. */
export function toOption(row: OptionRow): Option {
  const option = new Option(row.flag, row.about).makeOptionMandatory(row.isRequired ?? false)
  if (row.env !== undefined) option.env(row.env)
  if (row.default !== undefined) option.default(row.default)
  if (row.choices !== undefined) option.choices(row.choices)
  if (row.conflicts !== undefined) option.conflicts(row.conflicts)
  // Commander quotes the text that its parser rejects.
  if (row.parse !== undefined && row.isSecret !== true) option.argParser(row.parse)
  return option
}

function valuesIn<Table extends OptionTable>(command: Command, table: Table, refuse: Refuse): ValuesOf<Table> {
  const values: Record<string, unknown> = { ...command.opts() }
  for (const [field, { flag, env, parse, isSecret }] of Object.entries(table)) {
    const text = values[field]
    if (isSecret !== true || parse === undefined || typeof text !== "string") continue
    try {
      values[field] = parse(text)
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error
      refuse(`error: ${flag.split(" ")[0]} (${env}) is not valid: ${error.message}`)
    }
  }
  // Commander's own type is close to `any`. The table defines the content.
  return values as ValuesOf<Table>
}
