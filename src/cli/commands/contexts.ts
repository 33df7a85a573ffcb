import type { Command } from "commander"
import type { Commands } from "../command.ts"
import { usageError } from "../exit.ts"
import { warnOfEnvironment } from "./login.ts"

/** `context`: the places and credentials that the configuration holds. */
export function addContextCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "context", "List and choose the Berths that you are signed in to.")
  addList(commands, group)
  addUse(commands, group)
  addShow(commands, group)
  addRemove(commands, group)
}

function addList(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List the contexts.",
    examples: [["berth context ls", "the current one has a star"]],
    run: async (call) => {
      const { current, contexts } = call.config.read()
      const rows = Object.entries(contexts).map(([name, { url, project, key, signIn }]) => ({
        name,
        url,
        project: project ?? null,
        credential: key !== undefined ? "key" : signIn !== undefined ? "sign-in" : null,
        current: name === current,
      }))
      await call.print(
        rows,
        [
          { title: "", cell: (row) => (row.current ? "*" : "") },
          { title: "NAME", cell: (row) => row.name },
          { title: "URL", cell: (row) => row.url },
          { title: "PROJECT", cell: (row) => row.project ?? "" },
          { title: "CREDENTIAL", cell: (row) => row.credential ?? "" },
        ],
        (row) => row.name,
      )
      if (rows.length === 0) call.terminal.progress("There is no context: berth login URL creates one.")
      return 0
    },
  })
}

function addUse(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "use <name>",
    summary: "Choose the context of later commands.",
    examples: [["berth context use production", "commands now go there"]],
    run: (call) => {
      const {
        args: [name = ""],
        config,
        terminal,
      } = call
      config.change((before) => {
        if (before.contexts[name] === undefined)
          throw usageError(`There is no context ${name}; known: ${Object.keys(before.contexts).join(", ") || "none"}.`)
        return { ...before, current: name }
      })
      terminal.progress(`The context is now ${name}.`)
      warnOfEnvironment(call)
      return 0
    },
  })
}

function addShow(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "show",
    summary: "Show the context that commands use, without its credential.",
    examples: [["berth context show", "after BERTH_URL and --context are considered"]],
    run: async (call) => {
      const { name, context } = call.chosen()
      const credential = context.key !== undefined ? "key" : context.signIn === undefined ? "none" : "sign-in"
      const fields = { name: name ?? null, url: context.url, project: context.project ?? null, credential }
      if (call.isForProgram) await call.printValue(fields)
      else
        await call.terminal.line(
          [
            `Context:    ${name ?? "from BERTH_URL"}`,
            `URL:        ${context.url}`,
            `Project:    ${context.project ?? "the one of the URL's host"}`,
            `Credential: ${credential}`,
          ].join("\n"),
        )
      return 0
    },
  })
}

function addRemove(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "rm <name>",
    summary: "Delete a context and its credential from this machine.",
    examples: [["berth context rm production", "the key itself stays valid: berth key rm"]],
    run: ({ args: [name = ""], config, terminal }) => {
      config.change(({ current, contexts: { [name]: removed, ...contexts } }) => {
        if (removed === undefined) throw usageError(`There is no context ${name}.`)
        return { contexts, ...(current !== undefined && current !== name && { current }) }
      })
      terminal.progress(`The context ${name} is deleted.`)
      return 0
    },
  })
}
