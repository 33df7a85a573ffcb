import fc from "fast-check"
import { expect, it } from "vitest"
import { ID_LENGTH, makeId } from "./ids.ts"

const entropy = Uint8Array.from([0x9f, 0x3c, 0x01, 0xab, 0x7e])

it.each([
  ["Acme", "acme-9f3c01ab7e"],
  ["Île de Café", "ile-de-cafe-9f3c01ab7e"],
  ["  --a  b--  ", "a-b-9f3c01ab7e"],
  ["東京", "o-9f3c01ab7e"],
  ["kube-system", "kube-system-9f3c01ab7e"],
  ["x".repeat(64), `${"x".repeat(29)}-9f3c01ab7e`],
])("an id makes %j readable", (name, id) => {
  expect(makeId(name, entropy)).toBe(id)
})

it("an id is a DNS label of at most 40 characters, whatever the name", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 64 }), (name) => {
      const id = makeId(name)
      expect(id).toMatch(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/)
      expect(id.length).toBeLessThanOrEqual(ID_LENGTH)
    }),
  )
})

it("an id is another one each time", () => {
  expect(makeId("Acme")).not.toBe(makeId("Acme"))
})
