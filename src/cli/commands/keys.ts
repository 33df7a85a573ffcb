import { type Command, Option } from "commander"
import { allItems, readBody, type Schemas } from "../../client/client.ts"
import { type Call, type Commands, collectOption } from "../command.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { parseSeconds } from "../submission.ts"
import { formatAge } from "../table.ts"
import { confirmDeletion } from "./cron.ts"

const ROLES = ["viewer", "developer", "admin"] as const
type Role = (typeof ROLES)[number]

/** Issuer of the tokens of workflows on GitHub. */
const GITHUB = "https://token.actions.githubusercontent.com"

/** `key`: API keys of the project. */
export function addKeyCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "key", "List, create and delete the API keys of a project.")
  addList(commands, group)
  commands.add<{ role: Role; expires?: string; oidcIssuer?: string; claim?: string[] }>(group, {
    usage: "create <name>",
    summary: "Create a key, and print its value. It is shown only once.",
    more: "With --oidc-issuer the key has no value: tokens of that issuer stand for it if they have all the claims.",
    examples: [
      ["berth key create builds --role developer --expires 90d > builds.key", "the value alone is on standard output"],
      [
        `berth key create deploys --oidc-issuer ${GITHUB} --claim repository=acme/train --claim environment=production`,
        "for a repository's workflows on GitHub, without a secret",
      ],
    ],
    options: [
      new Option("--role <role>", "role of the key").choices(ROLES).default("developer"),
      new Option("--expires <duration>", "time until the key expires, such as 90d; default: never"),
      new Option("--oidc-issuer <url>", "issuer whose tokens stand for the key"),
      new Option(
        "--claim <claim=text>",
        "claim that a token must have, with exactly this text; may be repeated",
      ).argParser(collectOption),
    ],
    run: async (call) => {
      const { role, expires } = call.options
      const oidc = trustedIn(call.options)
      const until = expires === undefined ? undefined : new Date(Date.now() + parseSeconds("--expires", expires) * 1000)
      const body = {
        ...{ name: call.args[0] ?? "", role },
        ...(until !== undefined && { expires_at: until.toISOString() }),
        ...(oidc !== undefined && { oidc }),
      }
      const key = (await readBody(call.client().api.POST("/keys", { body }))) as Schemas["KeyCreated"]
      if (call.isForProgram) await call.printValue(key)
      else if (oidc === undefined) await call.terminal.line(key.value)
      const proof = oidc === undefined ? "Its value is not shown again." : `Tokens of ${oidc.issuer} stand for it.`
      call.terminal.progress(`The key ${key.name} (${role}) is created. ${proof}`)
      return 0
    },
  })
  commands.add<{ role: Role }>(group, {
    usage: "set-role <name>",
    summary: "Change the role of a key.",
    examples: [["berth key set-role builds --role viewer", "takes effect at once"]],
    options: [new Option("--role <role>", "new role").choices(ROLES).makeOptionMandatory()],
    run: async (call) => {
      const key_id = await idOf(call)
      await call
        .client()
        .api.PATCH("/keys/{key_id}", { params: { path: { key_id } }, body: { role: call.options.role } })
      call.terminal.progress(`The key ${call.args[0]} has the role ${call.options.role}.`)
      return 0
    },
  })
  commands.add<{ yes?: boolean }>(group, {
    usage: "rm <name>",
    summary: "Delete a key. Requests with it are rejected at once.",
    examples: [["berth key rm builds", "asks first; --yes does not"]],
    options: [new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const key_id = await idOf(call)
      await confirmDeletion(call, `Delete the key ${call.args[0]}? Programs that use it stop working.`)
      await call.client().api.DELETE("/keys/{key_id}", { params: { path: { key_id } } })
      call.terminal.progress(`The key ${call.args[0]} is deleted.`)
      return 0
    },
  })
}

/** Returns the tokens that the flags describe; undefined without them. @throws Failure */
function trustedIn({ oidcIssuer: issuer, claim = [] }: { oidcIssuer?: string; claim?: readonly string[] }) {
  if (issuer === undefined && claim.length === 0) return undefined
  if (issuer === undefined || claim.length === 0)
    throw usageError("--oidc-issuer and --claim belong together: give both or none.")
  const claims = claim.map((text) => {
    const at = text.indexOf("=")
    if (at < 1) throw usageError(`--claim ${text} must be CLAIM=TEXT, as in repository=acme/train.`)
    return [text.slice(0, at), text.slice(at + 1)] as const
  })
  return { issuer, claims: Object.fromEntries(claims) }
}

function addList(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List the keys, without their values.",
    examples: [["berth key ls -o wide", "with their ids"]],
    run: async (call) => {
      const client = call.client()
      const read = (query: { offset: number; limit: number }) =>
        readBody(client.api.GET("/keys", { params: { query } }))
      const rows = await allItems(read, (page) => page.keys)
      const now = new Date()
      await call.print(
        rows,
        [
          { title: "NAME", cell: ({ name }) => name },
          { title: "AGE", cell: ({ created_at }) => formatAge(created_at, now), alignsRight: true },
          { title: "ID", cell: ({ id }) => id, isWide: true },
        ],
        ({ name }) => name,
      )
      return 0
    },
  })
}

/** Returns the id of the key that the first argument names. @throws Failure if there is none */
async function idOf(call: Call<unknown>): Promise<string> {
  const [name = ""] = call.args
  const { keys } = await readBody(call.client().api.GET("/keys", { params: { query: { name } } }))
  const [key] = keys
  if (key === undefined) throw new Failure(EXIT.notFound, `There is no key ${name}: berth key ls`)
  return key.id
}
