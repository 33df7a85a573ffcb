import type { Command } from "commander"
import { fetched } from "../../client/client.ts"
import type { Call, Commands } from "../command.ts"
import { usageError } from "../exit.ts"

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
  found=("\${(@f)$(berth __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a found
}
compdef _berth berth
`,
  fish: `function __berth_complete
  set -l words (commandline -opc) (commandline -ct)
  berth __complete -- $words[2..] 2>/dev/null
end
complete -c berth -f -a '(__berth_complete)'
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
    more: "Commands, flags and the names of jobs, cronjobs, connections, keys and contexts are completed.",
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
): Promise<string[]> {
  let command = program
  for (const word of words) command = command.commands.find((one) => one.name() === word) ?? command
  if (last.startsWith("-"))
    return command.options.flatMap(({ long, short }) => [long, short].filter((flag) => flag != null))
  const before = words.at(-1) ?? ""
  const option = command.options.find(({ long, short }) => long === before || short === before)
  if (option?.argChoices !== undefined) return option.argChoices
  if (option?.long === "--context") return contextNames(call)
  if (command.commands.length > 0)
    return command.commands.map((one) => one.name()).filter((name) => !name.startsWith("_"))
  return namesFor(call, command)
}

function contextNames({ config }: Call<unknown>): string[] {
  return Object.keys(config.read().contexts)
}

/** Returns the names of the objects that a command takes. Without an answer in time, there are none. */
async function namesFor(call: Call<unknown>, command: Command): Promise<string[]> {
  const { parent } = command
  const signal = AbortSignal.timeout(PATIENCE_MS)
  try {
    if (parent?.name() === "context") return contextNames(call)
    const { api } = call.client()
    const named = <Item extends { name: string }>(items: readonly Item[]) => items.map(({ name }) => name)
    if (parent?.name() === "cron") return named((await fetched(api.GET("/cronjobs", { signal }))).cronjobs)
    if (parent?.name() === "key") return named((await fetched(api.GET("/keys", { signal }))).keys)
    if (parent?.name() === "connection") {
      const list = await fetched(api.GET("/connections", { signal }))
      return named(Array.isArray(list) ? list : list.connections)
    }
    if (!command.registeredArguments.some((argument) => argument.name() === "job")) return []
    return named((await fetched(api.GET("/jobs", { params: { query: { limit: MOST_NAMES } }, signal }))).jobs)
  } catch {
    // A completion that fails shows nothing: the command itself reports the reason.
    return []
  }
}
