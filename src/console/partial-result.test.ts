import { expect, it } from "vitest"
import { whyPartial } from "./partial-result.ts"

it.each([
  [null, undefined],
  ['"my-aws";reason="AccessDenied";message="ListBuckets: \\"no\\" \\\\ never"', 'ListBuckets: "no" \\ never'],
  ['"my-aws";reason="Timeout"', "Timeout"],
  ['"a";reason="First";message="one", "b";reason="Second";message="two"', "one"],
  ['"a";reason="R";message="said ;reason=\\"other\\""', 'said ;reason="other"'],
  ["nonsense", "unknown"],
])("the header %s means %j", (header, reason) => {
  expect(whyPartial(header)).toBe(reason)
})
