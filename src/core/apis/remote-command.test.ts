import { describe, expect, it } from "vitest"
import { readResult } from "./remote-command.ts"

const MALFORMED = { error: "the VM's agent sent no valid result" }

describe("readResult", () => {
  it.each([
    ['{"exitCode":7}', { exitCode: 7 }],
    ['{"exitCode":127,"error":"no such program","more":1}', { exitCode: 127, error: "no such program" }],
    ["{}", {}],
    ["", MALFORMED],
    ["{", MALFORMED],
    ["null", MALFORMED],
    ["7", MALFORMED],
    ['{"exitCode":"7"}', MALFORMED],
    ['{"exitCode":-1}', MALFORMED],
    ['{"exitCode":1e999}', MALFORMED],
    ['{"error":{"toString":1}}', MALFORMED],
  ])("returns the result in %s, or says that it is malformed", (text, result) => {
    expect(readResult(new TextEncoder().encode(text))).toEqual(result)
  })
})
