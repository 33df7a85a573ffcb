import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, expect, test } from "vitest"
import { ConfigFile, chooseContext, parseUrl, projectUrl } from "./context.ts"

const config = {
  current: "a",
  contexts: { a: { url: "https://a.test", key: "ka" }, b: { url: "https://b.test", project: "p" } },
}
const environment = { BERTH_URL: "https://env.test/", BERTH_API_KEY: "secret" }

test("the environment comes first, then --context, then the current one", () => {
  expect(chooseContext(config, environment, {})).toEqual({
    name: undefined,
    context: { url: "https://env.test", key: "secret" },
  })
  expect(chooseContext(config, {}, { context: "b" }).name).toBe("b")
  expect(chooseContext(config, {}, {}).name).toBe("a")
  expect(chooseContext(config, { BERTH_URL: "https://env.test" }, {}).name).toBe("a")
})

test("a key comes before a token, and a token before the command that prints one", () => {
  const contextOf = (more: object) => chooseContext(config, { BERTH_URL: "https://env.test", ...more }, {}).context
  const [command, token, key] = [{ BERTH_TOKEN_COMMAND: "make-token" }, { BERTH_TOKEN: "t" }, { BERTH_API_KEY: "k" }]
  expect(contextOf(command)).toEqual({ url: "https://env.test", tokenCommand: "make-token" })
  expect(contextOf({ ...command, ...token })).toMatchObject({ signIn: { accessToken: "t" } })
  expect(contextOf({ ...command, ...token, ...key })).toEqual({ url: "https://env.test", key: "k" })
})

test("--project replaces the context's project", () => {
  expect(projectUrl(chooseContext(config, {}, { context: "b", project: "q" }).context)).toBe(
    "https://b.test/projects/q/1",
  )
  expect(projectUrl(chooseContext(config, {}, {}).context)).toBe("https://a.test/1")
})

test("a missing or contradictory context is an error that names the way out", () => {
  expect(() => chooseContext({ contexts: {} }, {}, {})).toThrow("berth login URL")
  expect(() => chooseContext(config, {}, { context: "c" })).toThrow("known: a, b")
  expect(() => chooseContext(config, environment, { context: "b" })).toThrow("Unset BERTH_URL")
})

test("a URL needs no scheme, slash or version", () => {
  expect(parseUrl("berth.test")).toBe("https://berth.test")
  expect(parseUrl("http://berth.test:8080/1/")).toBe("http://berth.test:8080")
  expect(() => parseUrl("http://")).toThrow("is no URL")
})

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "berth-config-"))
})
afterEach(() => rmSync(home, { recursive: true }))

test("the file is for its owner only, and stays so", () => {
  const file = new ConfigFile({ XDG_CONFIG_HOME: home })
  expect(file.read()).toEqual({ contexts: {} })
  file.write(config)
  const mode = () => statSync(file.path).mode & 0o777
  expect(mode()).toBe(0o600)
  chmodSync(file.path, 0o644)
  expect(file.read()).toEqual(config)
  expect(mode()).toBe(0o600)
  expect(readFileSync(file.path, "utf8")).toContain("ka")
})
