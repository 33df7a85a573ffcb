import Type, { type TSchema } from "typebox"
import { describe, expect, test } from "vitest"
import { CpuQuantity, Int, MapSchema, StringEnum, Time } from "./schema.ts"
import { structuralSchema } from "./structural.ts"

const keys = { minLength: 1, maxLength: 9, pattern: "^[^'\"\\\\]$", allowed: "short" }

describe("structuralSchema", () => {
  test("keeps what the API server knows, nested, and drops what only we know", () => {
    const schema = Type.Object(
      {
        text: Type.String({ minLength: 1, maxLength: 5, pattern: "^a", default: "a", "x-berth-allowed": "a" }),
        list: Type.Optional(Type.Array(Int({ description: "n" }), { maxItems: 3, "x-kubernetes-list-type": "atomic" })),
        time: Type.Optional(Time("when")),
      },
      { additionalProperties: false, description: "all" },
    )
    const { time, ...properties } = structuralSchema(schema).properties ?? {}
    expect(time).toMatchObject({ type: "string", format: "date-time" })
    expect({ ...structuralSchema(schema), properties }).toStrictEqual({
      type: "object",
      description: "all",
      required: ["text"],
      properties: {
        text: { type: "string", minLength: 1, maxLength: 5, pattern: "^a", default: "a" },
        list: {
          type: "array",
          items: { type: "integer", format: "int64", minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description: "n" },
          maxItems: 3,
          "x-kubernetes-list-type": "atomic",
        },
      },
    })
  })

  test("writes the bounds of an int-or-string as one rule with a message for people", () => {
    expect(structuralSchema(CpuQuantity("vCPUs."))).toStrictEqual({
      "x-kubernetes-int-or-string": true,
      maxLength: 16,
      description: 'vCPUs. A fraction is a string, such as "0.5" or "500m".',
      "x-kubernetes-validations": [
        {
          rule: expect.stringMatching(/^string[(]self[)][.]matches[(]".*"[)]$/),
          message: 'must be a number of vCPUs such as 2, "0.5" or "500m"',
        },
      ],
    })
  })

  test("writes Berth's own keywords as rules", () => {
    const text = Type.String({
      maxLength: 9,
      pattern: "^a",
      "x-berth-allowed": "an a",
      "x-berth-pattern-as-rule": true,
    })
    const rules = (schema: TSchema) => structuralSchema(schema)["x-kubernetes-validations"]
    expect(structuralSchema(text)).toStrictEqual({
      type: "string",
      maxLength: 9,
      "x-kubernetes-validations": [{ rule: 'self.matches("^a")', message: "must be an a" }],
    })
    const inside = Type.Object({ a: text, b: Type.Optional(text) })
    const map = MapSchema(inside, { keys, maxProperties: 2, description: "map", "x-berth-total-bytes": 5 })
    expect(rules(map)).toContainEqual({
      rule: "self.map(key, bytes(key).size() + bytes(self[key].a).size() + (has(self[key].b) ? bytes(self[key].b).size() : 0)).sum() <= 5",
      message: "must have at most 5 bytes in total",
    })
    expect(() => structuralSchema(Type.Array(Int(), { maxItems: 1, "x-berth-total-bytes": 5 }))).toThrow(/only texts/)
    expect(rules(Type.Object({}, { "x-berth-disjoint-keys": ["a", "b"] }))).toEqual([
      expect.objectContaining({ optionalOldSelf: true, rule: expect.stringContaining("oldSelf.value().a") }),
    ])
  })

  test("writes rules on keys and dependent fields in CEL, beside the schema's own", () => {
    const map = MapSchema(StringEnum(["a"]), { keys, maxProperties: 2, description: "map" })
    expect(structuralSchema(map)["x-kubernetes-validations"]).toEqual([
      {
        rule: `self.all(key, key.size() >= 1 && key.size() <= 9 && key.matches("^[^'\\"\\\\\\\\]$"))`,
        message: "keys must be short",
      },
    ])
    const own = { rule: "true", message: "own" }
    const dependent = Type.Object({}, { dependentRequired: { a: ["b", "c"] }, "x-kubernetes-validations": [own] })
    expect(structuralSchema(dependent)["x-kubernetes-validations"]).toEqual([
      { rule: "!has(self.a) || has(self.b)", message: "a requires b" },
      { rule: "!has(self.a) || has(self.c)", message: "a requires c" },
      own,
    ])
  })

  test.each<[string, TSchema, string]>([
    ["const", Type.Literal("a"), "const"],
    ["a union", Type.Union([Type.String(), Type.Number()]), "anyOf"],
    ["a union with a type", Type.Unsafe({ type: "string", anyOf: [{ pattern: "a" }] }), "anyOf"],
    ["an intersection", Type.Unsafe({ type: "object", allOf: [] }), "allOf"],
    ["pattern properties", Type.Record(Type.String({ pattern: "^a" }), Type.String()), "patternProperties"],
    ["no type", Type.Unknown(), "type"],
    ["two types", Type.Unsafe({ type: ["string", "null"] }), "type"],
    ["nullable", Type.Unsafe({ type: "string", nullable: true }), "nullable"],
    ["an exclusive bound", Type.Number({ exclusiveMinimum: 0 }), "exclusiveMinimum"],
    ["a tuple", Type.Unsafe({ type: "array", items: [{ type: "string" }] }), "tuples"],
    ["a tuple of TypeBox", Type.Tuple([Type.String()]), "additionalItems"],
    ["unique items", Type.Array(Type.String(), { uniqueItems: true }), "uniqueItems"],
    ["an unknown keyword", Type.String({ title: "a" }), "title"],
    ["a keyword of another type", Type.String({ minItems: 1 }), "minItems"],
    ["an unknown extension", Type.String({ "x-kubernetes-foo": true }), "x-kubernetes-foo"],
    ["a format that not both know", Type.String({ format: "hostname" }), "format"],
    ["an int-or-string of another form", Type.Unsafe({ "x-kubernetes-int-or-string": true }), "int-or-string"],
    ["additional properties of any kind", Type.Unsafe({ type: "object", additionalProperties: true }), "{}"],
    ["a key's enum", Type.Unsafe({ type: "object", propertyNames: { enum: ["a"] } }), "enum"],
  ])("refuses %s and says where", (_, field, keyword) => {
    const schema = Type.Object({ list: Type.Array(Type.Object({ field })) })
    expect(() => structuralSchema(schema, "Job.spec")).toThrow(/^Job\.spec\.list\[\]\.field/)
    expect(() => structuralSchema(schema)).toThrow(keyword)
  })
})
