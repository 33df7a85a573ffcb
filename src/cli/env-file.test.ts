import { expect, test } from "vitest"
import { parseEnvFile } from "./env-file.ts"

const environment = { HOME: "/root", EMPTY: "" }
const read = (text: string | Uint8Array) =>
  parseEnvFile("job.env", typeof text === "string" ? new TextEncoder().encode(text) : text, environment)

test.each<[string, Record<string, string>]>([
  ["A=1\nB=x=y\n", { A: "1", B: "x=y" }],
  ["\ufeffA=1\r\nB=2\r", { A: "1", B: "2" }],
  ["  A= 1 \n\t#B=2\n #\n\u00a0C=3", { A: " 1 ", C: "3" }],
  ["A=1 # not a comment", { A: "1 # not a comment" }],
  ["HOME\nEMPTY\nMISSING", { HOME: "/root", EMPTY: "" }],
  ["A=1\nA=2\nA", { A: "2" }],
  [`A="1"`, { A: `"1"` }],
  ["__proto__=1", JSON.parse('{"__proto__":"1"}') as Record<string, string>],
])("%j has the variables %j", (text, variables) => {
  expect(Object.entries(read(text))).toEqual(Object.entries(variables))
})

test.each<[string | Uint8Array, string]>([
  ["A=1\nexport B=1", `--env-file job.env, line 2: the name "export B" has a blank`],
  ["A = 1", `line 1: the name "A " has a blank`],
  ["\n=hunter2", `line 2 has no name before "="`],
  [Uint8Array.of(65, 61, 0xff), "--env-file job.env is not UTF-8"],
])("%j is rejected: %s", (text, message) => {
  expect(() => read(text)).toThrow(message)
  expect(() => read(text)).not.toThrow("hunter2")
})
