import type { Command } from "commander"
import { load } from "js-yaml"
import { expect, test } from "vitest"
import { Commands } from "./command.ts"
import { programOf } from "./program.ts"
import { skillText } from "./skill.ts"
import { Terminal } from "./terminal.ts"

const { signal } = new AbortController()
const streams = { stdin: process.stdin, stdout: process.stdout, stderr: process.stderr }
const program = programOf(new Commands({} as never), "0.0.0", streams, new Terminal(streams, false, signal))
const text = skillText(program)

/** Returns the words of a command line. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "")
}

/** Returns the command that the words name, and the rest. */
function commandOf([name, ...rest]: string[], parent: Command = program): { command: Command; rest: string[] } {
  const found = parent.commands.find((one) => one.name() === name)
  if (found === undefined) return { command: parent, rest: name === undefined ? [] : [name, ...rest] }
  return commandOf(rest, found)
}

const blocks = [...text.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block = ""]) => block.trim().split("\n"))
const inline = [...text.matchAll(/`(berth [^`]+)`/g)].map(([, line = ""]) => line)
const lines = [...blocks, ...inline].filter((line) => !line.includes("COMMAND"))

test.each(lines)("the command line knows: %s", (line) => {
  const [berth, ...words] = wordsOf(line)
  expect(berth).toBe("berth")
  const { command, rest } = commandOf(words)
  expect(command.commands, `${line} is no whole command`).toEqual([])
  const at = rest.indexOf("--")
  const { operands, unknown } = command.parseOptions(at < 0 ? rest : rest.slice(0, at))
  expect(unknown).toEqual([])
  const { registeredArguments: known } = command
  const isVariadic = known.at(-1)?.variadic === true
  expect(operands.length).toBeLessThanOrEqual(isVariadic ? Number.POSITIVE_INFINITY : known.length)
})

test("every flag that it names is one of plan and run, or of a command that it shows", () => {
  const flags = [...text.matchAll(/`(?:-\w, )?(--[a-z-]+)[^`]*`/g)].map(([, flag]) => flag)
  const known = ["plan", "run"].flatMap((name) => program.commands.find((one) => one.name() === name)?.options ?? [])
  expect(flags.length).toBeGreaterThan(20)
  expect(flags.filter((flag) => flag !== "--help" && !known.some(({ long }) => long === flag))).toEqual([])
})

test("it has the form of a skill, and is short", () => {
  const [, header = ""] = /^---\n([\s\S]*?)\n---\n/.exec(text) ?? []
  const { name, description, ...others } = load(header) as Record<string, string>
  expect([name, others]).toEqual(["berth", {}])
  expect(description?.length).toBeLessThanOrEqual(1024)
  expect(text.split("\n").length).toBeLessThan(120)
})
