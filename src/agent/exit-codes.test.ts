import { constants } from "node:os"
import { describe, expect, it, test } from "vitest"
import { failureText, signalName } from "./exit-codes.ts"

describe("an exit code", () => {
  it.each([
    [1, "exit code 1"],
    [2, "exit code 2"],
    [126, "exit code 126 (command not executable); make it executable, for the VM's architecture"],
    [127, "exit code 127 (command not found); use a program that the image has, for the VM's architecture"],
    [128, "exit code 128"],
    [134, "exit code 134 (SIGABRT); the program ended itself; read the end of its log"],
    [135, "exit code 135 (SIGBUS); is /dev/shm full? Raise resources.memory, of which it is a part"],
    [137, "exit code 137 (SIGKILL); a process of the job killed it; read the end of its log"],
    [
      139,
      "exit code 139 (SIGSEGV); the program or one of its libraries used memory wrongly; correct it, or use other versions",
    ],
    [143, "exit code 143 (SIGTERM)"],
    // SIGCHLD and SIGSTOP end no process, and real-time signals are numbers of programs.
    [145, "exit code 145"],
    [147, "exit code 147"],
    [162, "exit code 162"],
    [255, "exit code 255"],
    [-1, "exit code -1"],
  ])("%i says what it means", (code, said) => {
    expect(failureText(code)).toBe(said)
  })

  it("has the cause that the runtime knows, and then no guess", () => {
    expect(failureText(137, "OOMKilled; raise resources.memory")).toBe(
      "exit code 137 (SIGKILL): OOMKilled; raise resources.memory",
    )
    expect(failureText(127, "no /app")).toBe(
      "exit code 127 (command not found): no /app; use a program that the image has, for the VM's architecture",
    )
  })

  test.skipIf(process.platform !== "linux")("names the signals of Linux as Node does", () => {
    const same: Record<string, string> = { SIGPOLL: "SIGIO", SIGIOT: "SIGABRT", SIGUNUSED: "SIGSYS" }
    for (const [name, number] of Object.entries(constants.signals)) {
      const said = /\((SIG[A-Z0-9]+)/.exec(failureText(128 + number))?.[1]
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
