import { constants } from "node:os"
import { describe, expect, it, test } from "vitest"
import { exitText, signalName } from "./exit-codes.ts"

describe("an exit code", () => {
  it.each([
    [1, "exit code 1"],
    [2, "exit code 2"],
    [126, "exit code 126 (command not executable)"],
    [127, "exit code 127 (command not found)"],
    [128, "exit code 128"],
    [134, "exit code 134 (SIGABRT)"],
    [135, "exit code 135 (SIGBUS: is /dev/shm full?)"],
    [137, "exit code 137 (SIGKILL)"],
    [139, "exit code 139 (SIGSEGV)"],
    [143, "exit code 143 (SIGTERM)"],
    // SIGCHLD and SIGSTOP end no process, and real-time signals are numbers of programs.
    [145, "exit code 145"],
    [147, "exit code 147"],
    [162, "exit code 162"],
    [255, "exit code 255"],
    [-1, "exit code -1"],
  ])("%i says what it means", (code, said) => {
    expect(exitText(code)).toBe(said)
  })

  test.skipIf(process.platform !== "linux")("names the signals of Linux as Node does", () => {
    const same: Record<string, string> = { SIGPOLL: "SIGIO", SIGIOT: "SIGABRT", SIGUNUSED: "SIGSYS" }
    for (const [name, number] of Object.entries(constants.signals)) {
      const said = /\((SIG[A-Z0-9]+)/.exec(exitText(128 + number))?.[1]
      if (said !== undefined) expect(said).toBe(same[name] ?? name)
    }
  })
})

it.each([
  ["SIGTERM", "SIGTERM"],
  ["QUIT", "SIGQUIT"],
  ["3", "SIGQUIT"],
  ["sigint", "SIGINT"],
  ["SIGRTMIN+3", "SIGRTMIN+3"],
])("an image's stop signal %s is %s", (given, name) => {
  expect(signalName(given)).toBe(name)
})
