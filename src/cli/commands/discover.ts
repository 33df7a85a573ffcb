import { type Command, Option } from "commander"
import { readBody, type Schemas } from "../../client/client.ts"
import type { Call, Commands } from "../command.ts"

type Item = Schemas["DiscoveredItem"]

interface DiscoverFlags {
  connection?: string
}

/** `discover`: contents of the accounts of the connections. */
export function addDiscoverCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "discover", "List what the connected accounts have.")
  const query = (call: Call<DiscoverFlags>) => ({
    params: { query: call.options.connection === undefined ? {} : { connection_id: call.options.connection } },
  })
  const add = (usage: string, summary: string, read: (call: Call<DiscoverFlags>) => Promise<readonly Item[]>) =>
    commands.add<DiscoverFlags>(group, {
      usage,
      summary,
      more: "A connection that fails has no rows; berth connection ls shows why.",
      examples: [[`berth discover ${usage} --connection main`, "of one connection"]],
      options: [new Option("--connection <name>", "only this connection")],
      run: async (call) => {
        const rows = await read(call)
        await call.print(
          rows,
          [
            { title: "NAME", cell: ({ name }) => name },
            { title: "PLATFORM", cell: ({ platform }) => platform },
            { title: "CONNECTION", cell: ({ connection_type }) => connection_type },
            { title: "ID", cell: ({ id }) => id, isWide: true },
          ],
          ({ name }) => name,
        )
        if (rows.length === 0) call.terminal.progress("Nothing found.")
        return 0
      },
    })
  add(
    "buckets",
    "List the buckets, for --volume.",
    async (call) => (await readBody(call.client().api.GET("/resources/storages", query(call)))).storages,
  )
  add(
    "images",
    "List the image repositories.",
    async (call) => (await readBody(call.client().api.GET("/resources/repositories", query(call)))).repositories,
  )
  add(
    "pools",
    "List the accounts, projects and subscriptions for VMs.",
    async (call) =>
      (await readBody(call.client().api.GET("/resources/virtual-machine-pools", query(call)))).virtual_machine_pools,
  )
}
