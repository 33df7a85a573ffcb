import { type Command, Option } from "commander"
import { allItems, readBody, type Schemas } from "../../client/client.ts"
import type { Call, Commands } from "../command.ts"
import { troubleLines } from "../conditions.ts"
import { usageError } from "../exit.ts"
import { formatAge, formatTime } from "../table.ts"
import { shown as printable } from "../terminal.ts"
import { confirmDeletion } from "./cron.ts"

type Machine = Schemas["MachineRecord"]
type Joining = Schemas["MachineJoining"]

interface JoinFlags {
  region?: string
  price?: string
  lease?: string
  again?: boolean
  systemd?: boolean
}

/** `machine`: machines that the project owns. */
export function addMachineCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "machine", "Run jobs on machines of your own: workstations, servers, VMs.")
  addJoin(commands, group)
  addList(commands, group)
  addShow(commands, group)
  addDrain(commands, group)
  commands.add<{ yes?: boolean }>(group, {
    usage: "remove <name>",
    summary: "Remove a machine. Its job ends, and gets another machine.",
    examples: [["berth machine remove gpu-1", "asks first; --yes does not"]],
    options: [new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const [name = ""] = call.args
      await confirmDeletion(call, `Remove the machine ${name}? Its job ends, and gets another machine.`)
      await call.client().api.DELETE("/machines/{name}", { params: { path: { name } } })
      call.terminal.progress(`The machine ${name} is removed. Its host ends its job, and forgets its keys.`)
      return 0
    },
  })
}

function addJoin(commands: Commands, group: Command): void {
  commands.add<JoinFlags>(group, {
    usage: "join <name>",
    summary: "Add a machine. Prints the one command to run on it, once.",
    examples: [
      ["berth machine join gpu-1", "a command that starts the agent in the machine's Docker engine"],
      ["berth machine join gpu-1 --price 0.20 --region office", "jobs are charged 0.20 USD/h, and may name the region"],
      ["berth machine join gpu-1 --again", "another command, for a new host in place of the former one"],
    ],
    options: [
      new Option("--region <region>", "region that jobs may name; default: own"),
      new Option("--price <usd>", "price while it runs a job, USD per hour; default: 0"),
      new Option("--lease <seconds>", "seconds without Berth after which it ends its job, 120 to 86400; default: 900"),
      new Option("--again", "a new command for a machine that exists"),
      new Option("--systemd", "print the command for systemd and Node.js, instead of Docker"),
    ],
    run: async (call) => {
      const [name = ""] = call.args
      const made = call.options.again === true ? await joinAgain(call, name) : await create(call, name)
      return await printJoin(call, name, made)
    },
  })
}

function create(call: Call<JoinFlags>, name: string): Promise<Joining> {
  const { region, price, lease } = call.options
  const body = {
    name,
    ...(region !== undefined && { region }),
    ...(price !== undefined && { hourly_price_usd: numberOf("--price", price) }),
    ...(lease !== undefined && { lease_seconds: numberOf("--lease", lease) }),
  }
  return readBody(call.client().api.POST("/machines", { body }))
}

function joinAgain(call: Call<JoinFlags>, name: string): Promise<Joining> {
  const { region, price, lease } = call.options
  if (region !== undefined || price !== undefined || lease !== undefined) {
    throw usageError("--again makes only a new command: leave out --region, --price and --lease.")
  }
  return readBody(call.client().api.POST("/machines/{name}/token", { params: { path: { name } } }))
}

function numberOf(flag: string, text: string): number {
  const number = Number(text)
  if (text.trim() !== "" && Number.isFinite(number)) return number
  throw usageError(`${flag} must be a number, not ${JSON.stringify(text)}.`)
}

/** Prints the command on standard output, so that it can be piped, and what it is for on standard error. */
async function printJoin(call: Call<JoinFlags>, name: string, { join, ...machine }: Joining): Promise<number> {
  if (call.isForProgram) {
    await call.printValue({ ...machine, join })
    return 0
  }
  const command = (call.options.systemd === true ? join.systemd : join.docker) ?? join.source
  const until = formatTime(join.expires_at)
  if (join.note !== null) call.terminal.progress(join.note)
  if (command === null) {
    call.terminal.progress(`The join token of ${name}, valid once and until ${until}:`)
    await call.terminal.line(join.token)
    return 0
  }
  call.terminal.progress(`Run this on the machine ${name}, once and before ${until}:`)
  await call.terminal.line(command.trimEnd().split("\n").map(printable).join("\n"))
  call.terminal.progress("berth machine ls shows the machine as ready as soon as it has joined.")
  return 0
}

function addList(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List the project's machines, and the job that each one has.",
    examples: [["berth machine ls", "state, resources and price of each"]],
    run: async (call) => {
      const client = call.client()
      const read = (query: { offset: number; limit: number }) =>
        readBody(client.api.GET("/machines", { params: { query } }))
      const rows = await allItems(read, (page) => page.machines)
      const now = new Date()
      await call.print(
        rows,
        [
          { title: "NAME", cell: ({ name }) => name },
          { title: "STATE", cell: ({ status }) => status },
          { title: "JOB", cell: ({ job }) => job ?? "" },
          { title: "vCPU", cell: ({ facts }) => (facts === null ? "" : String(facts.cpu)), alignsRight: true },
          { title: "MEM", cell: ({ facts }) => (facts === null ? "" : `${facts.memory_gib} GiB`), alignsRight: true },
          { title: "GPU", cell: gpuOf },
          { title: "REGION", cell: ({ region }) => region },
          { title: "USD/H", cell: ({ hourly_price_usd }) => String(hourly_price_usd), alignsRight: true },
          {
            title: "HEARD",
            cell: ({ last_heartbeat_at: at }) => (at === null ? "" : formatAge(at, now)),
            alignsRight: true,
          },
        ],
        ({ name }) => name,
      )
      if (rows.length === 0) call.terminal.progress("No machines: berth machine join adds one.")
      return 0
    },
  })
}

function gpuOf({ facts }: Machine): string {
  if (facts === null || facts.gpu_model === null) return ""
  return `${facts.gpu_count} × ${facts.gpu_model}`
}

function addShow(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "show <name>",
    summary: "Show a machine, and why it gets jobs or does not.",
    examples: [["berth machine show gpu-1", "its state, its host and its lease"]],
    run: async (call) => {
      const path = { name: call.args[0] ?? "" }
      const machine = await readBody(call.client().api.GET("/machines/{name}", { params: { path } }))
      if (call.isForProgram) await call.printValue(machine)
      else await call.terminal.line(textOf(machine))
      return 0
    },
  })
}

function textOf(machine: Machine): string {
  const { name, status, message, job, facts, region, hourly_price_usd, lease_seconds, lease_ends_at } = machine
  const disk = facts === null ? "" : `, ${facts.disk_gib} GiB of free disk`
  const host = facts === null ? "none has joined yet" : `${facts.cpu} vCPUs, ${facts.memory_gib} GiB${disk}`
  const gpu = gpuOf(machine)
  return [
    `${printable(name)}  ${status}`,
    `  Message:   ${printable(message ?? "not known yet")}`,
    `  Job:       ${printable(job ?? "none")}`,
    `  Host:      ${host}`,
    ...(gpu === "" ? [] : [`  GPUs:      ${printable(gpu)}`]),
    `  Price:     ${hourly_price_usd} USD/h`,
    `  Region:    ${printable(region)}`,
    `  Lease:     ${lease_seconds} s${lease_ends_at === null ? "" : `, the present one until ${formatTime(lease_ends_at)}`}`,
    ...(machine.shared ? ["  Shared:    jobs of every project may run on it"] : []),
    ...troubleLines(machine.conditions, [message]),
  ].join("\n")
}

function addDrain(commands: Commands, group: Command): void {
  commands.add<{ undo?: boolean }>(group, {
    usage: "drain <name>",
    summary: "Give a machine no other job. Its present one runs on.",
    examples: [
      ["berth machine drain gpu-1", "before maintenance; berth machine ls shows when it is drained"],
      ["berth machine drain gpu-1 --undo", "it gets jobs again"],
    ],
    options: [new Option("--undo", "give it jobs again")],
    run: async (call) => {
      const [name = ""] = call.args
      const unschedulable = call.options.undo !== true
      const request = { params: { path: { name } }, body: { unschedulable } }
      const { status, job } = await readBody(call.client().api.PATCH("/machines/{name}", request))
      if (!unschedulable) call.terminal.progress(`The machine ${name} gets jobs again.`)
      else if (status === "draining")
        call.terminal.progress(`The machine ${name} gets no other job. It still runs ${job ?? "a job"}.`)
      else call.terminal.progress(`The machine ${name} gets no job until berth machine drain ${name} --undo.`)
      return 0
    },
  })
}
