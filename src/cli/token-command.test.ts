import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { CommandTokens } from "./token-command.ts"

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "berth-token-"))
})
afterEach(() => rmSync(folder, { recursive: true }))

/** Returns a JWT that ends after this time. Only its payload is read. */
const jwt = (seconds: number) =>
  `e30.${Buffer.from(JSON.stringify({ exp: Math.floor(Date.now() / 1000) + seconds })).toString("base64url")}.x`

/** Returns the tokens of a command, and how often it ran. */
function tokensOf(token: string, signal = new AbortController().signal) {
  const calls = join(folder, "calls")
  const tokens = new CommandTokens({ ...process.env, TOKEN: token }, signal)
  const command = `echo called >> "${calls}"; echo "$TOKEN"`
  return {
    of: (rejected?: string) => tokens.of(command, rejected),
    calls: () => readFileSync(calls, "utf8").trim().split("\n").length,
  }
}

test("a token is used until shortly before it ends, by requests at the same time too", async () => {
  const lasting = jwt(600)
  const tokens = tokensOf(lasting)
  expect(await Promise.all([tokens.of(), tokens.of()])).toEqual([lasting, lasting])
  expect([await tokens.of(), tokens.calls()]).toEqual([lasting, 1])
})

test("the command runs again for a token that is about to end", async () => {
  const tokens = tokensOf(jwt(20))
  await tokens.of()
  await tokens.of()
  expect(tokens.calls()).toBe(2)
})

test("the command runs again for a token that was rejected before its end, once", async () => {
  const lasting = jwt(600)
  const tokens = tokensOf(lasting)
  await tokens.of()
  expect(await Promise.all([tokens.of(lasting), tokens.of(lasting), tokens.of("another")])).toEqual([
    lasting,
    lasting,
    lasting,
  ])
  expect(tokens.calls()).toBe(2)
})

test("a token of another form is kept, too", async () => {
  const tokens = tokensOf("opaque")
  expect([await tokens.of(), await tokens.of(), tokens.calls()]).toEqual(["opaque", "opaque", 1])
})

test("a job can still be cancelled after Ctrl-C", async () => {
  expect(await tokensOf("opaque", AbortSignal.abort()).of()).toBe("opaque")
})

test.each([
  ["echo why not >&2; exit 3", "why not"],
  ["true", "it printed no token"],
  ["echo two words", "it printed no token"],
])("the failure of %s names the variable and the reason, and the command may run again", async (command, why) => {
  const tokens = new CommandTokens(process.env, new AbortController().signal)
  const failure = { code: 6, message: `The command of BERTH_TOKEN_COMMAND gave no token: ${why}` }
  for (let count = 0; count < 2; count++) await expect(tokens.of(command)).rejects.toMatchObject(failure)
})
