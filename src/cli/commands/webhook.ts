import { type Command, Option } from "commander"
import { allItems, readBody, type Schemas } from "../../client/client.ts"
import type { Call, Commands } from "../command.ts"
import { troubleLines } from "../conditions.ts"
import { EXIT, usageError } from "../exit.ts"
import { formatAge, formatTime } from "../table.ts"
import { shown as printable } from "../terminal.ts"
import { secretOption, secretText } from "./connection.ts"
import { confirmDeletion } from "./cron.ts"

type Webhook = Schemas["WebhookRecord"]
type Change = Schemas["WebhookChange"]

interface Flags {
  url?: string
  event?: string[]
  label?: string[]
  tag?: string[]
  include?: string[]
  slack?: boolean
  fromFile?: string
}

/** `webhook`: receivers of a project's events. */
export function addWebhookCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "webhook", "Send events of the project, such as the end of a job, to others.")
  addList(commands, group)
  addShow(commands, group)
  addCreation(commands, group)
  addDeliveries(commands, group)
  addTest(commands, group)
  addRotate(commands, group)
  addSwitch(commands, group, {
    usage: "pause <name>",
    summary: "Pause a webhook: send nothing to it.",
    is_active: false,
  })
  addSwitch(commands, group, {
    usage: "enable <name>",
    summary: "Send events again, also after Berth has disabled the webhook.",
    is_active: true,
  })
  commands.add<{ yes?: boolean }>(group, {
    usage: "rm <name>",
    summary: "Delete a webhook. Pending events are discarded.",
    examples: [["berth webhook rm build-bot", "asks first; --yes does not"]],
    options: [new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const [name = ""] = call.args
      await confirmDeletion(call, `Delete the webhook ${name}?`)
      await call.client().api.DELETE("/webhooks/{name}", { params: { path: { name } } })
      call.terminal.progress(`The webhook ${name} is deleted.`)
      return 0
    },
  })
}

function addList(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List the webhooks, and the ends of jobs that wait for each.",
    examples: [["berth webhook ls", "never shows secrets"]],
    run: async (call) => {
      const client = call.client()
      const read = (query: { offset: number; limit: number }) =>
        readBody(client.api.GET("/webhooks", { params: { query } }))
      const rows = await allItems(read, (page) => page.webhooks)
      const now = new Date()
      await call.print(
        rows,
        [
          { title: "NAME", cell: ({ name }) => name },
          { title: "STATE", cell: stateOf },
          { title: "EVENTS", cell: ({ events }) => events.join(",") },
          { title: "RECEIVER", cell: ({ receiver, format }) => receiver ?? format },
          { title: "PENDING", cell: ({ pending_count }) => String(pending_count), alignsRight: true },
          { title: "MISSED", cell: ({ missed_count }) => String(missed_count), alignsRight: true },
          { title: "AGE", cell: ({ created_at }) => formatAge(created_at, now), alignsRight: true },
        ],
        ({ name }) => name,
      )
      if (rows.length === 0) call.terminal.progress("No webhooks: berth webhook add creates one.")
      return 0
    },
  })
}

function stateOf({ is_active, reason, failing_since }: Webhook): string {
  if (!is_active) return "Paused"
  return reason === "Active" && failing_since !== null ? "Failing" : (reason ?? "")
}

function addShow(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "show <name>",
    summary: "Show a webhook, and its latest deliveries.",
    examples: [["berth webhook show build-bot", "its state, and what is pending"]],
    run: async (call) => {
      const path = { name: call.args[0] ?? "" }
      const { api } = call.client()
      const webhook = await readBody(api.GET("/webhooks/{name}", { params: { path } }))
      if (call.isForProgram) {
        await call.printValue(webhook)
        return 0
      }
      await call.terminal.line(textOf(webhook))
      const query = { offset: 0, limit: SHOWN_DELIVERIES }
      const { deliveries } = await readBody(api.GET("/webhooks/{name}/deliveries", { params: { path, query } }))
      if (deliveries.length > 0) await printDeliveries(call, deliveries)
      return 0
    },
  })
}

/** Deliveries that `show` prints: the pending ones first. */
const SHOWN_DELIVERIES = 10

function textOf(webhook: Webhook): string {
  const { name, message, url, receiver, format, events, labels, tags, include } = webhook
  const { pending_count, delivered_count, missed_count, last_success_at, failing_since } = webhook
  const selection = [...Object.entries(labels).map(([key, value]) => `${key}=${value}`), ...tags]
  return [
    `${printable(name)}  ${stateOf(webhook)}`,
    `  Message:   ${printable(message ?? "not known yet")}`,
    `  Receiver:  ${printable(url ?? receiver ?? `secret (${format})`)}`,
    `  Events:    ${events.join(", ")}`,
    ...(selection.length === 0 ? [] : [`  Jobs with: ${printable(selection.join(", "))}`]),
    ...(include.length === 0 ? [] : [`  Includes:  ${include.join(", ")}`]),
    `  Messages:  ${delivered_count} delivered, ${pending_count} pending, ${missed_count} missed`,
    `  Last:      ${last_success_at === null ? "never delivered" : formatTime(last_success_at)}`,
    ...(failing_since === null ? [] : [`  Failing:   since ${formatTime(failing_since)}`]),
    ...troubleLines(webhook.conditions, [message]),
  ].join("\n")
}

function addCreation(commands: Commands, group: Command): void {
  const list = (value: string, before: string[] = []): string[] => [...before, value]
  commands.add<Flags>(group, {
    usage: "add <name>",
    summary: "Add a webhook. Its signing secret is printed once.",
    more: "With --slack, the address is a secret: the command asks for it, or reads it from standard input or --from-file.",
    examples: [
      ["berth webhook add build-bot --url https://ci.example.com/berth", "the ends of all jobs"],
      ["berth webhook add alarms --slack --event job.failed --label team=ml", "failed jobs of a team, to Slack"],
    ],
    options: [
      new Option("--url <url>", "address of the receiver"),
      new Option("--event <type>", "event to send; repeatable; default: job.*").argParser(list),
      new Option("--label <key=value>", "only jobs with this label; repeatable").argParser(list),
      new Option("--tag <tag>", "only jobs with this tag; repeatable").argParser(list),
      new Option(
        "--include <field>",
        "send env, command, args or output (the end of the log) too; repeatable",
      ).argParser(list),
      new Option("--slack", "send messages in Slack's format"),
      secretOption(),
    ],
    run: async (call) => {
      const [name = ""] = call.args
      const { event = ["job.*"], label = [], tag = [], include = [], slack } = call.options
      const url = await urlOf(call)
      const body = {
        ...{ name, url, events: event, labels: labelsOf(label), tags: tag, include },
        ...(slack === true && { format: "slack" }),
      }
      const made = await readBody(call.client().api.POST("/webhooks", { body: body as Schemas["WebhookCreation"] }))
      return printSecret(call, made, `The webhook ${name} is stored. berth webhook test ${name} sends a test message.`)
    },
  })
}

async function urlOf(call: Call<Flags>): Promise<string> {
  const { slack, url } = call.options
  if (slack === true && url !== undefined)
    throw usageError("The address of a Slack webhook is a secret: leave out --url.")
  if (slack === true) return secretText(call, "Address of the Slack webhook")
  if (url === undefined) throw usageError("Give the address of the receiver with --url, or --slack.")
  return url
}

function labelsOf(pairs: readonly string[]): Record<string, string> {
  const entries = pairs.map((pair) => {
    const at = pair.indexOf("=")
    if (at < 1) throw usageError(`--label ${pair} is not key=value.`)
    return [pair.slice(0, at), pair.slice(at + 1)] as const
  })
  return Object.fromEntries(entries)
}

/** Prints a new signing secret, alone on standard output. */
async function printSecret(call: Call<unknown>, webhook: Schemas["WebhookCreated"], progress: string): Promise<number> {
  if (call.isForProgram) await call.printValue(webhook)
  else if (webhook.signing_secret !== null) {
    call.terminal.progress("The signing secret is shown once:")
    await call.terminal.line(webhook.signing_secret)
  }
  call.terminal.progress(progress)
  return 0
}

function addDeliveries(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "deliveries <name>",
    summary: "List the oldest pending and the latest ended deliveries of a webhook.",
    examples: [["berth webhook deliveries build-bot", "with the cause of each failure"]],
    run: async (call) => {
      const client = call.client()
      const path = { name: call.args[0] ?? "" }
      const read = (query: { offset: number; limit: number }) =>
        readBody(client.api.GET("/webhooks/{name}/deliveries", { params: { path, query } }))
      const rows = await allItems(read, (page) => page.deliveries)
      await printDeliveries(call, rows)
      return 0
    },
  })
}

function printDeliveries(call: Call<unknown>, deliveries: Schemas["WebhookDelivery"][]): Promise<void> {
  const now = new Date()
  return call.print(
    deliveries,
    [
      { title: "EVENT", cell: ({ type }) => type },
      { title: "SUBJECT", cell: ({ subject }) => subject },
      { title: "AGE", cell: ({ time }) => formatAge(time, now), alignsRight: true },
      { title: "STATUS", cell: ({ status }) => status },
      { title: "TRIES", cell: ({ attempts }) => String(attempts), alignsRight: true },
      {
        title: "ERROR",
        cell: ({ error, status_code }) => error ?? (status_code === null ? "" : String(status_code)),
      },
    ],
    ({ id }) => id,
  )
}

function addTest(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "test <name>",
    summary: "Send a test message now. Ends with 1 if the receiver does not accept it.",
    examples: [["berth webhook test build-bot", "shows the status of the response"]],
    run: async (call) => {
      const params = { path: { name: call.args[0] ?? "" } }
      const result = await readBody(call.client().api.POST("/webhooks/{name}/test", { params }))
      if (call.isForProgram) await call.printValue(result)
      else if (result.delivered)
        await call.terminal.line(`accepted with ${result.status_code} in ${result.duration_ms} ms`)
      else call.terminal.warn(`not accepted: ${result.error}`)
      return result.delivered ? 0 : EXIT.failed
    },
  })
}

function addRotate(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "rotate <name>",
    summary: "Create a new signing secret. For a day, messages are signed with the old one too.",
    examples: [["berth webhook rotate build-bot", "prints the new secret once"]],
    run: async (call) => {
      const [name = ""] = call.args
      const rotated = await readBody(call.client().api.POST("/webhooks/{name}/rotate", { params: { path: { name } } }))
      return printSecret(call, rotated, "The former secret is used for 24 hours more: give the receiver the new one.")
    },
  })
}

function addSwitch(
  commands: Commands,
  group: Command,
  { usage, summary, ...change }: { usage: string; summary: string } & Pick<Change, "is_active">,
): void {
  commands.add(group, {
    usage,
    summary,
    examples: [[`berth webhook ${usage.replace("<name>", "build-bot")}`, "prints the name"]],
    run: async (call) => {
      const params = { path: { name: call.args[0] ?? "" } }
      const { name } = await readBody(call.client().api.PATCH("/webhooks/{name}", { params, body: change }))
      await call.terminal.line(name)
      return 0
    },
  })
}
