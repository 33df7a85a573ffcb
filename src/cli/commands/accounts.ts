import { type Command, Option } from "commander"
import { groupsWarningFor, listMembers, listOrganizations, listProjects } from "../../client/accounts.ts"
import { readBody, type Schemas } from "../../client/client.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, Failure } from "../exit.ts"

const MEMBER_ROLES = ["owner", "admin", "member"] as const
type MemberRole = (typeof MEMBER_ROLES)[number]

/** `org` and `project`: for people, not for keys. */
export function addAccountCommands(commands: Commands, program: Command): void {
  addOrganizations(commands, commands.group(program, "org", "List and create organizations, and give people roles."))
  addProjects(commands, commands.group(program, "project", "List, create and choose projects."))
}

function addOrganizations(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List your organizations.",
    examples: [["berth org ls", "with your role in each"]],
    run: async (call) => {
      const organizations = await listOrganizations(call.accounts())
      await call.print(
        organizations,
        [
          { title: "ID", cell: ({ id }) => id },
          { title: "NAME", cell: ({ displayName }) => displayName },
          { title: "ROLE", cell: ({ role }) => role },
        ],
        ({ id }) => id,
      )
      await warnOfGroups(call)
      return 0
    },
  })
  commands.add(group, {
    usage: "create <name>",
    summary: "Create an organization. You become its owner.",
    examples: [["berth org create Acme", "prints its id"]],
    run: async (call) => {
      const body = { name: call.args[0] ?? "" }
      const { id } = (await readBody(
        call.accounts().api.POST("/organizations", { body }),
      )) as Schemas["OrganizationRecord"]
      await call.terminal.line(id)
      return 0
    },
  })
  addMembers(commands, group)
}

function addMembers(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "members <org>",
    summary: "List the members of an organization.",
    examples: [["berth org members acme-9f3c01ab7e", "with their user ids"]],
    run: async (call) => {
      const members = await listMembers(call.accounts(), call.args[0] ?? "")
      await call.print(
        members,
        [
          { title: "USER", cell: ({ userId }) => userId },
          { title: "EMAIL", cell: ({ email }) => email ?? "" },
          { title: "ROLE", cell: ({ role }) => role },
        ],
        ({ userId }) => userId,
      )
      return 0
    },
  })
  commands.add<{ role: MemberRole }>(group, {
    usage: "set-role <org> <user>",
    summary: "Give a user a role in an organization.",
    examples: [["berth org set-role acme-9f3c01ab7e u-4f… --role admin", "the user id is in berth check"]],
    options: [new Option("--role <role>", "role").choices(MEMBER_ROLES).makeOptionMandatory()],
    run: async (call) => {
      const [org_id = "", member_user_id = ""] = call.args
      const { role } = call.options
      const path = { params: { path: { org_id, member_user_id } } }
      await call.accounts().api.PUT("/organizations/{org_id}/members/{member_user_id}", { ...path, body: { role } })
      call.terminal.progress(`${member_user_id} is ${role} of ${org_id}.`)
      return 0
    },
  })
}

function addProjects(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List your projects.",
    examples: [["berth project ls", "of all your organizations"]],
    run: async (call) => {
      const rows = await listProjects(call.accounts())
      await call.print(
        rows,
        [
          { title: "ID", cell: ({ id }) => id },
          { title: "NAME", cell: ({ displayName }) => displayName },
          { title: "ORGANIZATION", cell: ({ organizationId }) => organizationId },
        ],
        ({ id }) => id,
      )
      await warnOfGroups(call)
      return 0
    },
  })
  commands.add<{ org?: string }>(group, {
    usage: "create <name>",
    summary: "Create a project, and print its id.",
    examples: [["berth project use $(berth project create Reports)", "create it, and work in it"]],
    options: [new Option("--org <id>", "organization; default: your only one")],
    run: async (call) => {
      const client = call.accounts()
      const org_id = call.options.org ?? (await onlyOrganization(call))
      const body = { name: call.args[0] ?? "" }
      const path = { params: { path: { org_id } } }
      const { id } = (await readBody(
        client.api.POST("/organizations/{org_id}/projects", { ...path, body }),
      )) as Schemas["ProjectRecord"]
      await call.terminal.line(id)
      return 0
    },
  })
  commands.add(group, {
    usage: "use <project>",
    summary: "Choose the project of the current context.",
    examples: [["berth project use reports-77ab01c4d2", "later commands use it"]],
    run: (call) => {
      const [project = ""] = call.args
      const { name, context } = call.chosen()
      if (name === undefined)
        throw new Failure(EXIT.usage, "The context comes from BERTH_URL: set BERTH_PROJECT instead.")
      call.config.change((config) => ({ ...config, contexts: { ...config.contexts, [name]: { ...context, project } } }))
      call.terminal.progress(`The project of the context ${name} is now ${project}.`)
      return 0
    },
  })
}

/** Warns a person who may be in more organizations, by groups that the token does not name. */
async function warnOfGroups(call: Call<unknown>): Promise<void> {
  const warning = await groupsWarningFor(call.accounts())
  if (warning !== undefined) call.terminal.warn(warning)
}

async function onlyOrganization(call: Call<unknown>): Promise<string> {
  const organizations = await listOrganizations(call.accounts())
  const [only] = organizations
  if (only === undefined) throw new Failure(EXIT.notFound, "You have no organization: berth org create NAME")
  if (organizations.length > 1)
    throw new Failure(
      EXIT.usage,
      `You have several organizations: give --org, one of ${organizations.map(({ id }) => id).join(", ")}.`,
    )
  return only.id
}
