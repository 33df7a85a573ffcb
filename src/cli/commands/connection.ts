import { readFileSync } from "node:fs"
import { type Command, Option } from "commander"
import { allItems, readBody, type Schemas } from "../../client/client.ts"
import { checkTexts, formFor, type Provider } from "../../client/connections.ts"
import { PROVIDERS } from "../../client/providers.ts"
import { joinWithOr } from "../../client/words.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, usageError } from "../exit.ts"
import { formatAge, wrapText } from "../table.ts"
import { shown } from "../terminal.ts"
import { confirmDeletion } from "./cron.ts"

type Connection = Schemas["ConnectionRecord"]

export const CONNECTION_TYPES: readonly string[] = Object.keys(PROVIDERS)

/** Returns the types of connections that have a field. */
function typesWith(field: string): string[] {
  return Object.entries(PROVIDERS).flatMap(([type, { fields }]) => (field in fields ? [type] : []))
}

/** Fields that aren't secrets, by name: the flag of each, and its description. */
const PLAIN = new Map(
  Object.values(PROVIDERS)
    .flatMap(({ fields }) => Object.entries(fields))
    .flatMap(([field, { flag, help }]) =>
      flag === undefined ? [] : [[field, { flag, text: `${help} (${typesWith(field).join(", ")})` }] as const],
    ),
)

function plainOptions(): Option[] {
  return [...PLAIN.values()].map(({ flag, text }) => new Option(flag, text))
}

/** Returns the provider of a type of connection. @throws usage error for an unknown type */
function providerOf(type: string): Provider {
  const provider = Object.entries(PROVIDERS).find(([name]) => name === type)?.[1]
  if (provider === undefined)
    throw usageError(`${type} is not a type of connection: use ${CONNECTION_TYPES.join(", ")}.`)
  return provider
}

type Flags = Record<string, string | undefined>

/** `connection`: credentials for clouds and registries. Secrets come from a question, standard input or a file. */
export function addConnectionCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "connection", "List, add and rotate connections to clouds and registries.")
  addList(commands, group)
  commands.add<Flags & { fromFile?: string; withoutSecret?: boolean }>(group, {
    usage: "add <type> <name>",
    summary: `Add a connection of type ${joinWithOr(CONNECTION_TYPES)}.`,
    more: "The command asks for the secret, or reads it from standard input or --from-file. It is never a flag.",
    examples: [
      ["berth connection add aws main --access-key-id AKIA…", "asks for the secret access key"],
      ["berth connection add gcp main --gcp-project acme --from-file key.json", "with a key file"],
      ["berth connection add aws main --role-arn arn:aws:iam::…:role/berth", "without a secret"],
    ],
    options: [...plainOptions(), secretOption(), withoutSecretOption()],
    run: async (call) => {
      const [type = "", name = ""] = call.args
      const fields = fieldsOf(call.options)
      const secret = call.options.withoutSecret === true ? {} : await secretOf(call, type, fields)
      const body = { type, name, ...fields, ...secret }
      const connection = await readBody(call.client().api.POST("/connections", { body: body as never }))
      return reportAdded(call, connection)
    },
  })
  addRotate(commands, group)
  addCheck(commands, group)
  commands.add<{ yes?: boolean }>(group, {
    usage: "rm <name>",
    summary: "Delete a connection. Berth still terminates the VMs that use it.",
    examples: [["berth connection rm main", "asks first; --yes does not"]],
    options: [new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const [name = ""] = call.args
      await confirmDeletion(call, `Delete the connection ${name}?`)
      await call.client().api.DELETE("/connections/{name}", { params: { path: { name } } })
      call.terminal.progress(`The connection ${name} is deleted.`)
      return 0
    },
  })
}

/** Option that reads a secret from a file. */
export function secretOption(): Option {
  return new Option("--from-file <file>", "file with the secret; - is standard input")
}

function withoutSecretOption(): Option {
  return new Option("--without-secret", "add it without a secret, for sign-in by identity tokens")
}

function addList(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List the connections, and the uses that their accounts allow.",
    examples: [["berth connection ls", "never shows secrets"]],
    run: async (call) => {
      const rows = await listConnections(call)
      const now = new Date()
      await call.print(
        rows,
        [
          { title: "NAME", cell: ({ name }) => name },
          { title: "TYPE", cell: ({ type }) => type },
          { title: "VMS", cell: ({ capabilities }) => stateOf(capabilities?.vms) },
          { title: "BUCKETS", cell: ({ capabilities }) => stateOf(capabilities?.buckets) },
          { title: "IMAGES", cell: ({ capabilities }) => stateOf(capabilities?.repositories) },
          { title: "PRICES", cell: (connection) => stateOf(pricesOf(connection)) },
          { title: "AGE", cell: ({ created_at }) => formatAge(created_at, now), alignsRight: true },
        ],
        ({ name }) => name,
      )
      if (rows.length === 0) call.terminal.progress("No connections: berth connection add creates one.")
      return 0
    },
  })
}

/** Returns the connections of the project, without secrets. */
export async function listConnections(call: Call<unknown>): Promise<Connection[]> {
  const client = call.client()
  type Page = Extract<Schemas["ConnectionList"], { total: number }>
  const read = async (query: { offset: number; limit: number }) =>
    (await readBody(client.api.GET("/connections", { params: { query } }))) as Page
  return allItems(read, (page) => page.connections)
}

/** Returns the condition that says if Berth reads the current prices of the connection's cloud. */
export function pricesOf({ conditions = [] }: Connection) {
  return conditions.find(({ type }) => type === "Prices")
}

type Capability = NonNullable<NonNullable<Connection["capabilities"]>["vms"]>

/** Returns a capability in one word; the reason if there is a problem. */
export function stateOf(capability: Pick<Capability, "status" | "reason"> | undefined): string {
  if (capability === undefined) return ""
  return capability.status === "True" ? "yes" : capability.reason
}

function addRotate(commands: Commands, group: Command): void {
  commands.add<Flags & { fromFile?: string }>(group, {
    usage: "rotate <name>",
    summary: "Replace the secret of a connection.",
    examples: [["berth connection rotate main --access-key-id AKIA…", "a new key, and its secret"]],
    options: [...plainOptions(), secretOption()],
    run: async (call) => {
      const path = { params: { path: { name: call.args[0] ?? "" } } }
      const client = call.client()
      const { type } = await readBody(client.api.GET("/connections/{name}", path))
      const body = { ...fieldsOf(call.options), ...(await secretOf(call, type)) }
      return reportAdded(
        call,
        await readBody(client.api.PATCH("/connections/{name}", { ...path, body: body as never })),
      )
    },
  })
}

function addCheck(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "check <name>",
    summary: "Check a connection with its provider now, and name what is missing.",
    more: "Exit code 1: it has not passed.",
    examples: [["berth connection check main", "after a change of its rights at the cloud"]],
    run: async (call) => {
      const params = { path: { name: call.args[0] ?? "" } }
      const check = await readBody(call.client().api.POST("/connections/{name}/check", { params }))
      const uses = Object.entries(check.capabilities).map(
        ([use, state]) => `${use}: ${stateOf(state)}${state?.message === undefined ? "" : `, ${state.message}`}`,
      )
      if (call.isForProgram) await call.printValue(check)
      else for (const line of [...checkTexts(check), ...uses]) await call.terminal.line(wrapText(shown(line), ""))
      return check.result === "passed" ? 0 : EXIT.failed
    },
  })
}

/** Reports a stored connection without its secret. */
async function reportAdded(call: Call<unknown>, { name, type }: Pick<Connection, "name" | "type">): Promise<number> {
  await call.terminal.line(name)
  call.terminal.progress(
    `The connection ${name} (${type}) is stored. berth connection check ${name} shows if its account works.`,
  )
  return 0
}

/** Returns the fields of the flags. */
function fieldsOf(flags: Flags): Flags {
  const entries = [...PLAIN].map(([field, { flag }]): [string, string | undefined] => [
    field,
    flags[new Option(flag).attributeName()],
  ])
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined))
}

/**
 * Returns the secret of a connection; nothing if the fields are of a form without one.
 * @param given fields of a new connection: those that lack are reported before the secret is asked for
 */
async function secretOf(call: Call<{ fromFile?: string }>, type: string, given?: Flags): Promise<Flags> {
  const provider = providerOf(type)
  const form = formFor(provider, Object.keys(given ?? {}))
  const secret = form.find((field) => !PLAIN.has(field))
  if (secret === undefined) return {}
  const lacking = given === undefined ? [] : form.filter((field) => field !== secret && !(field in given))
  if (lacking.length > 0)
    throw usageError(
      `A connection of type ${type} also needs ${lacking.map((field) => PLAIN.get(field)?.flag).join(" and ")}.`,
    )
  return { [secret]: await secretText(call, provider.fields[secret]?.label ?? secret) }
}

/** Returns a secret of a file, of standard input, or of the answer to a question. */
export async function secretText(call: Call<{ fromFile?: string }>, name: string): Promise<string> {
  const { fromFile } = call.options
  const text = fromFile === undefined ? await askSecret(call, name) : await inFile(call, fromFile)
  if (text.trim() === "") throw usageError(`The ${name.toLowerCase()} is empty.`)
  return text.trim()
}

function askSecret({ terminal }: Call<unknown>, name: string): Promise<string> {
  return terminal.secret(name, "give --from-file FILE, or --from-file - for standard input")
}

async function inFile({ terminal }: Call<unknown>, file: string): Promise<string> {
  if (file === "-") return terminal.input("the secret")
  try {
    return readFileSync(file, "utf8")
  } catch (error) {
    throw usageError(`${file} can't be read: ${(error as Error).message}`)
  }
}
