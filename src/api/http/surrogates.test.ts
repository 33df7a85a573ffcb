import { expect, it } from "vitest"
import { requireUnicode } from "./surrogates.ts"

it.each([
  ['{"args":["a\\ud83d"]}', "/args/0"],
  ['{"env":{"A":"\\uDC00x"}}', "/env/A"],
  ['{"env":{"\\ud83d":"x"}}', "/env/\ufffd"],
])("a body is rejected with half of a surrogate pair in %s", (text, place) => {
  expect(() => requireUnicode(text, JSON.parse(text))).toThrow(
    expect.objectContaining({ status: 400, errors: [expect.objectContaining({ pointer: place })] }),
  )
})

it.each(['{"a":"\\ud83d\\udea2"}', '{"a":"\\\\ud83d"}', '{"a":"🚢"}', '"a"'])("a body is accepted with %s", (text) => {
  expect(() => requireUnicode(text, JSON.parse(text))).not.toThrow()
})
