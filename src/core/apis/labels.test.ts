import { describe, expect, test } from "vitest"
import { isLabelValue, mirroredLabels } from "./labels.ts"
import { RESERVED_LABEL_DOMAINS } from "./meta.ts"

function isMirrored(key: string, value = "a"): boolean {
  return Object.keys(mirroredLabels({ [key]: value })).length === 1
}

describe("mirroredLabels", () => {
  test("keeps what Kubernetes allows, with its value, and drops the rest", () => {
    expect(mirroredLabels({ team: "a", "acme.com/cost": "", "two words": "b", why: "any text" })).toEqual({
      team: "a",
      "acme.com/cost": "",
    })
    expect(mirroredLabels(undefined)).toEqual({})
  })

  test.each([
    "a",
    "A_b.c-9",
    "a".repeat(63),
    "acme.com/a",
    `${"a".repeat(63)}.${"b".repeat(63)}/x`,
    "my-kubernetes.io/a",
  ])("key %s is mirrored", (key) => {
    expect(isMirrored(key)).toBe(true)
  })

  test.each([
    "",
    "-a",
    "a-",
    "ä",
    "a b",
    "a/b/c",
    "/a",
    "Acme.com/a",
    "a..b/c",
    `${"a".repeat(254)}/a`,
    "a\n",
    "acme.com/",
  ])("key %j is not mirrored", (key) => {
    expect(isMirrored(key)).toBe(false)
  })

  test.each([...RESERVED_LABEL_DOMAINS])("nothing under %s is mirrored", (domain) => {
    expect(isMirrored(`${domain}/x`)).toBe(false)
    expect(isMirrored(`app.${domain}/x`)).toBe(false)
    expect(isMirrored(`a.b.${domain}/x`)).toBe(false)
  })

  test("a key that is a property of every object is like any other", () => {
    expect(mirroredLabels(JSON.parse('{"constructor":"a","__proto__":"b"}'))).toEqual(JSON.parse('{"constructor":"a"}'))
  })
})

test.each([
  ["", true],
  ["v1.2_3", true],
  ["a".repeat(63), true],
  ["a".repeat(64), false],
  ["-a", false],
  ["a b", false],
  ["é", false],
])("label value %j: %s", (value, allowed) => {
  expect(isLabelValue(value)).toBe(allowed)
})
