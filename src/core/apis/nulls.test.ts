import Type from "typebox"
import { describe, expect, test } from "vitest"
import { withoutNulls } from "./nulls.ts"
import { CpuQuantity, MapSchema } from "./schema.ts"

const keys = { maxLength: 9, allowed: "short" }
const Body = Type.Object({
  text: Type.String(),
  cpu: CpuQuantity("vCPUs"),
  nullable: Type.Unsafe<string | null>({ type: ["string", "null"] }),
  anything: Type.Unknown(),
  inner: Type.Object({ text: Type.String() }),
  list: Type.Array(Type.Object({ text: Type.String() })),
  map: MapSchema(Type.String(), { keys, maxProperties: 9, description: "" }),
})

describe("withoutNulls", () => {
  const body = {
    text: null,
    cpu: null,
    nullable: null,
    anything: null,
    unknown: null,
    inner: { text: null },
    list: [{ text: null }, null],
    map: { a: null, b: "b" },
  }
  const rest = { nullable: null, anything: null, unknown: null, inner: {}, list: [{}, null] }

  test("drops nulls of named fields that can't be null", () => {
    expect(withoutNulls(Body, body, "fields")).toEqual({ ...rest, map: { a: null, b: "b" } })
  })

  test("drops nulls in maps too where it is asked to, as the API server does", () => {
    expect(withoutNulls(Body, body, "fieldsAndMaps")).toEqual({ ...rest, map: { b: "b" } })
  })

  test("leaves what is no object as it is", () => {
    expect(withoutNulls(Body, null, "fields")).toBeNull()
    expect(withoutNulls(Body, "text", "fields")).toBe("text")
  })
})
