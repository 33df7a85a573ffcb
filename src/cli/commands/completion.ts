import type { Command, Option } from "commander"
import { listProjects } from "../../client/accounts.ts"
import { readBody } from "../../client/client.ts"
import { JOB_CLOUDS } from "../../client/providers.ts"
import type { Call, Commands } from "../command.ts"
import { usageError } from "../exit.ts"
import { CONNECTION_TYPES } from "./connection.ts"

/** Scripts that ask `berth __complete`. Without an answer they complete files, as after --file. */
const SCRIPTS: Record<string, string> = {
  bash: `_berth() {
  local IFS=$'\\n'
  COMPREPLY=($(berth __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _berth berth
`,
  zsh: `#compdef berth
_berth() {
  local -a found
  found=(\${(f)"$(berth __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _berth berth
`,
  fish: `function __berth_complete
  set -l words (commandline -opc) (commandline -ct)
  berth __complete -- $words[2..] 2>/dev/null
end
complete -c berth -f -a '(__berth_complete)'
complete -c berth -F -n '__fish_prev_arg_in -f --file --env-file --from-file'
`,
}

/** Longest time for names from the API, milliseconds: a person waits for the Tab key. */
const PATIENCE_MS = 1500
/** Largest number of names of jobs. */
const MOST_NAMES = 100

/** `completion`, and the hidden command that its scripts call. */
export function addCompletionCommands(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "completion <shell>",
    summary: "Print the completion script of bash, zsh or fish.",
    more: "Commands, flags and the names of jobs, cronjobs, arrays, connections, webhooks, keys and contexts are completed.",
    examples: [
      ["source <(berth completion bash)", "in ~/.bashrc; the same for zsh"],
      ["berth completion fish > ~/.config/fish/completions/berth.fish", "for fish"],
    ],
    run: async (call) => {
      const script = SCRIPTS[call.args[0] ?? ""]
      if (script === undefined)
        throw usageError(`${call.args[0]} has no completion: use ${Object.keys(SCRIPTS).join(", ")}.`)
      await call.terminal.write(script)
      return 0
    },
  })
  commands.addHidden(program, "__complete [words...]", async (call) => {
    const words = [...call.args]
    const last = words.pop() ?? ""
    const candidates = await candidatesOf(call, program, words, last)
    for (const candidate of candidates.filter((one) => one.startsWith(last))) await call.terminal.line(candidate)
    return 0
  })
}

/** Returns the words that may follow. */
async function candidatesOf(
  call: Call<unknown>,
  program: Command,
  words: readonly string[],
  last: string,
): Promise<readonly string[]> {
  // What follows is the container's.
  if (words.includes("--")) return []
  let [command, at] = [program, 0]
  for (const [index, word] of words.entries()) {
    const inner = command.commands.find((one) => one.name() === word)
    if (inner !== undefined) [command, at] = [inner, index + 1]
  }
  const option = optionOf(command, words.at(-1) ?? "")
  if (option?.required === true) return option.argChoices ?? valuesOf(call, option.long ?? "")
  if (last.startsWith("-"))
    return command.options.flatMap(({ long, short }) => [long, short].filter((flag) => flag != null))
  if (command.commands.length > 0)
    return command.commands.map((one) => one.name()).filter((name) => !name.startsWith("_"))
  const { registeredArguments: args } = command
  const index = argumentsIn(command, words.slice(at))
  const argument = args[index] ?? (args.at(-1)?.variadic === true ? args.at(-1) : undefined)
  return argument === undefined ? [] : namesFor(call, command.parent?.name() ?? "", argument.name())
}

function optionOf(command: Command, word: string): Option | undefined {
  return command.options.find(({ long, short }) => long === word || short === word)
}

/** Returns the number of arguments among words, without flags and their values. */
function argumentsIn(command: Command, words: readonly string[]): number {
  const isValue = (index: number) => optionOf(command, words[index - 1] ?? "")?.required === true
  return words.filter((word, index) => !word.startsWith("-") && !isValue(index)).length
}

/** Returns the values of a flag. */
async function valuesOf(call: Call<unknown>, flag: string): Promise<readonly string[]> {
  if (flag === "--context") return Object.keys(call.config.read().contexts)
  if (flag === "--after") return prerequisites(call)
  if (flag === "--connection") return namesFor(call, "connection", "name")
  return flag === "--cloud" ? JOB_CLOUDS : []
}

/** Returns the names that --after may have. */
async function prerequisites(call: Call<unknown>): Promise<readonly string[]> {
  const [jobs, arrays] = await Promise.all([namesFor(call, "", "job"), namesFor(call, "", "array")])
  return [...jobs, ...arrays.map((name) => `array/${name}`)]
}

/** Returns the names that an argument may have. Without an answer in time, there are none. */
async function namesFor(call: Call<unknown>, group: string, argument: string): Promise<readonly string[]> {
  const read = READERS[argument === "name" ? group : argument]
  try {
    return (await read?.(call, AbortSignal.timeout(PATIENCE_MS))) ?? []
  } catch {
    // A completion that fails shows nothing: the command itself reports the reason.
    return []
  }
}

const named = (items: readonly { name: string }[]) => items.map(({ name }) => name)

/** Functions that read names, by the name of an argument, or by the group of commands for an argument `name`. */
const READERS: Record<string, (call: Call<unknown>, signal: AbortSignal) => Promise<readonly string[]>> = {
  job: async (call, signal) => {
    const params = { query: { limit: MOST_NAMES } }
    return named((await readBody(call.client().api.GET("/jobs", { params, signal }))).jobs)
  },
  "job-or-array": async (call, signal) =>
    (await Promise.all([READERS["job"]?.(call, signal), READERS["array"]?.(call, signal)])).flatMap(
      (names) => names ?? [],
    ),
  array: async (call, signal) => named((await readBody(call.client().api.GET("/arrays", { signal }))).arrays),
  cron: async (call, signal) => named((await readBody(call.client().api.GET("/cronjobs", { signal }))).cronjobs),
  key: async (call, signal) => named((await readBody(call.client().api.GET("/keys", { signal }))).keys),
  connection: async (call, signal) => {
    const list = await readBody(call.client().api.GET("/connections", { signal }))
    return named(Array.isArray(list) ? list : list.connections)
  },
  webhook: async (call, signal) => named((await readBody(call.client().api.GET("/webhooks", { signal }))).webhooks),
  context: async ({ config }) => Object.keys(config.read().contexts),
  type: async () => CONNECTION_TYPES,
  shell: async () => Object.keys(SCRIPTS),
  project: async (call) => (await listProjects(call.accounts())).map(({ id }) => id),
  org: async (call, signal) =>
    (await readBody(call.accounts().api.GET("/organizations", { signal }))).organizations.map(({ id }) => id),
}
