import { describe, expect, test } from "vitest"
import { LIMITS } from "./field-limits.ts"
import { secretKeys, whySecretMissing } from "./secret-env.ts"

const base64 = (value: string | Uint8Array) => Buffer.from(value as string).toString("base64")

describe("the check of a run's secretEnv", () => {
  const secrets: Record<string, ReturnType<typeof secretKeys>> = {
    db: secretKeys({
      password: base64("pä$$"),
      empty: base64(""),
      binary: base64(Uint8Array.of(0xff, 0xfe)),
      nul: base64("a\0b"),
      long: base64("x".repeat(LIMITS.envValue + 1)),
    }),
  }
  const whyFor = (secret: string, key: string) =>
    whySecretMissing({ A: { secret: "db", key: "password" }, B: { secret, key } }, (name) => secrets[name])

  test.each([
    ["db", "password", undefined],
    ["db", "empty", undefined],
    ["db", "binary", /^secretEnv B: Secret db: the value of key binary can't be a variable: it is not UTF-8/],
    ["db", "nul", /it is not UTF-8, or has NUL$/],
    ["db", "long", /it is longer than [0-9]+ characters$/],
    ["db", "constructor", /^secretEnv B: Secret db has no key constructor; add it$/],
    [
      "other",
      "password",
      /^secretEnv B: Secret other of type berth.dev\/env is not in the job's namespace; create it$/,
    ],
  ])("finds the values, or says why not: %s %s", (secret, key, why) => {
    const found = whyFor(secret, key)
    if (why === undefined) expect(found).toBeUndefined()
    else expect(found).toMatch(why)
  })

  test("needs no values", () => {
    expect(JSON.stringify(secrets)).not.toContain("pä$$")
    expect(JSON.stringify(secrets)).not.toContain(base64("pä$$"))
  })
})
