import fc from "fast-check"
import { dump } from "js-yaml"
import { describe, expect, it } from "vitest"
import { parseJson } from "./json.ts"
import { toProblem } from "./problem.ts"
import { parseYaml } from "./yaml.ts"

const DEPTH = 32

/** Returns the messages of the problem: its detail, then the detail of each error. */
function errorsIn(parse: () => unknown): string[] {
  try {
    parse()
  } catch (error) {
    const problem = toProblem(error)
    expect(problem.status).toBe(400)
    return [problem.message, ...problem.errors.map(({ detail }) => detail)]
  }
  throw new Error("the body was not rejected")
}

describe("parseJson", () => {
  it("accepts the texts that JSON.parse accepts, with the same values", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(undefined, 2, "\t"), (value, space) => {
        const text = JSON.stringify(value, null, space)
        expect(parseJson(text, 1000)).toEqual(JSON.parse(text))
      }),
    )
  })

  it("rejects the texts that JSON.parse rejects, always with line and column", () => {
    const pieces = fc.constantFrom(
      ..."{}[],: \n",
      '"a"',
      '"b"',
      '"\\',
      '"',
      "1",
      "01",
      "-",
      ".5",
      "1e3",
      "tru",
      "true",
      "null",
      "x",
    )
    fc.assert(
      fc.property(
        fc.array(pieces, { maxLength: 12 }).map((parts) => parts.join("")),
        (text) => {
          let isJson = true
          try {
            JSON.parse(text)
          } catch {
            isJson = false
          }
          if (isJson && !/"(\w)".*"\1"/s.test(text)) expect(parseJson(text, DEPTH)).toEqual(JSON.parse(text))
          else if (!isJson)
            expect(errorsIn(() => parseJson(text, DEPTH))[0]).toMatch(/line \d+, column \d+: expected .+ but found/)
        },
      ),
      { numRuns: 2000 },
    )
  })

  it.each([
    ['{"a": 1,}', 'line 1, column 9: expected a key in double quotes, but found "}"'],
    ["{'a': 1}", 'line 1, column 2: expected a key in double quotes or "}", but found "\'"'],
    ['{"a" 1}', 'line 1, column 6: expected ":", but found "1"'],
    ["[1 2]", 'line 1, column 4: expected "," or "]", but found "2"'],
    ["[1,\n 2", 'line 2, column 3: expected "," or "]", but found the text ends'],
    ['{"a": "x\ny"}', 'line 1, column 7: expected a value, but found "\\""'],
    ["{} {}", 'line 1, column 4: expected the end, but found "{"'],
    ["nul", 'line 1, column 1: expected a value, but found "n"'],
  ])("rejects %j with the position and the expected token", (text, expected) => {
    expect(errorsIn(() => parseJson(text, DEPTH))[0]).toContain(expected)
  })

  it("names all duplicate keys of an object, also when they are escaped differently", () => {
    expect(errorsIn(() => parseJson('{"a":{"b":1,"\\u0062":2},"b":1,"a":2}', DEPTH)).slice(1)).toEqual([
      'line 1, column 13: duplicate key "\\u0062"',
      'line 1, column 31: duplicate key "a"',
    ])
  })

  it("rejects more than 2,000 keys, in one object or in many", () => {
    const one = Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`k${i}`, 1]))
    expect(parseJson(JSON.stringify(one), DEPTH)).toEqual(one)
    expect(errorsIn(() => parseJson(JSON.stringify([one, { a: 1 }]), DEPTH))[0]).toMatch(
      /more than 2000 keys \(line 1, column \d+/,
    )
  })

  it("rejects more than 5,000 values, at the first one too many", () => {
    const list = Array(4999).fill(0)
    expect(parseJson(JSON.stringify(list), DEPTH)).toEqual(list)
    for (const one of ["0", '"a"', "null", "[", "{"]) {
      const [error] = errorsIn(() => parseJson(`[${"0,".repeat(4999)}${one} no JSON`, DEPTH))
      expect(error).toBe("The body has more than 5000 values (line 1, column 10000): send fewer.")
    }
  })

  it("repeats at most 80 characters of a duplicate key", () => {
    const key = "k".repeat(1000)
    expect(errorsIn(() => parseJson(`{"${key}":1,"${key}":2}`, DEPTH))[1]).toMatch(/duplicate key "k{79}…$/)
  })

  it("rejects nesting over the limit, at any depth", () => {
    expect(parseJson("[".repeat(DEPTH) + "]".repeat(DEPTH), DEPTH)).toBeDefined()
    expect(errorsIn(() => parseJson("[".repeat(DEPTH + 1) + "]".repeat(DEPTH + 1), DEPTH))[0]).toMatch(/deeper than 32/)
    expect(errorsIn(() => parseJson("[".repeat(250_000), DEPTH))[0]).toMatch(/deeper/)
  })

  it("takes time in proportion to the text, with any number of errors", () => {
    const text = `{${Array.from({ length: 2000 }, () => '"a":1').join(",")}}`
    expect(errorsIn(() => parseJson(text, DEPTH))).toHaveLength(21)
    expect(parseJson(`"${"\\n".repeat(130_000)}"`, DEPTH)).toHaveLength(130_000)
  })
})

describe("parseYaml", () => {
  it("parses a dumped value to the same value", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        const plain: unknown = JSON.parse(JSON.stringify(value))
        expect(parseYaml(dump(plain, { noRefs: true }), 1000)).toEqual(plain)
      }),
    )
  })

  it("parses JSON, which is a subset of YAML", () => {
    expect(parseYaml('{"image": "a", "env": {"A": "1"}}', DEPTH)).toEqual({ image: "a", env: { A: "1" } })
  })

  it("follows YAML 1.2 core: times of the day and dates are strings", () => {
    const text = "d: 12:30:00\ne: 2026-01-01\nf: 0o17\ng: 0x1f\nh: 1e3\ni: ~\nj: True\nk: 0\nl: 00:10\nm: -0.5"
    expect(parseYaml(text, DEPTH)).toEqual({
      d: "12:30:00",
      e: "2026-01-01",
      f: 15,
      g: 31,
      h: 1000,
      i: null,
      j: true,
      k: 0,
      l: "00:10",
      m: -0.5,
    })
  })

  it.each([
    [
      "a: 010",
      'line 1, column 4: a: 010 is 8 for kubectl (YAML 1.1) and 10 in YAML 1.2: write 8 or 10, or quote it ("010")',
    ],
    [
      "env: {A: yes}",
      'line 1, column 10: env.A: yes is true for kubectl (YAML 1.1) and a text in YAML 1.2: write true, or quote it ("yes")',
    ],
    ["a: [{b: 1_000}]", "line 1, column 9: a[0].b: 1_000 is 1000 for kubectl"],
    ["on: 1", "line 1, column 1: a key must be a string: quote it"],
    ["a: .inf", 'a: .inf is not a number that can be stored: quote it (".inf")'],
    ["a: -010", "line 1, column 4: a: -010 is -8"],
    ["a: [1, 017]", "line 1, column 8: a[1]: 017 is 15"],
    ["010: a", "line 1, column 1: a key must be a string"],
    ["a:\n  true: b", "line 2, column 3: a key must be a string"],
    ["? ~\n: b", "line 1, column 3: a key must be a string"],
    ["a: {<<: {b: 1}}", "line 1, column 5: merge keys"],
    ["a: &x 1", "line 1, column 4: anchors"],
    ["a: *x", "line 1, column 4: aliases"],
    ["a: &x [*x]", "line 1, column 8: aliases"],
    ["a: !!binary aGk=", "line 1, column 4: tags"],
    ["a: !!js/function x", "line 1, column 4: tags"],
    ["!!map {a: 1}", "line 1, column 1: tags"],
    ["a: 1\n---\nb: 1", "the body must have one document, not 2"],
    ["%YAML 1.1\n---\na: yes", "%YAML 1.1 is not supported: Berth reads YAML 1.2"],
    ["# nothing", "the body must have one document, not 0"],
  ])("rejects %j", (text, expected) => {
    expect(
      errorsIn(() => parseYaml(text, DEPTH))
        .slice(1)
        .join("\n"),
    ).toContain(expected)
  })

  it.each([
    ["a: 1\na: 2", /line 2, column 1: duplicated mapping key/],
    ["a: b: c", /line 1, column 5/],
    ["a:\n\tb: 1", /line 2, column 1: tab/],
    ["? [a]\n: 1", /complex keys/],
    ["[".repeat(7000), /maxDepth/],
    ["- 1\n".repeat(8001), /8001 line ends and characters/],
    ["a: 'b", /line 1/],
  ])("rejects %j with the position", (text, expected) => {
    expect(errorsIn(() => parseYaml(text, DEPTH))[0]).toMatch(expected)
  })

  it("accepts quoted strings that look like another type", () => {
    const text = '"<<": \'010\'\n\'1\': "*x"\n"true": "!!str"\nzip: \'00501\''
    expect(parseYaml(text, DEPTH)).toEqual({ "<<": "010", 1: "*x", true: "!!str", zip: "00501" })
  })

  it("reads __proto__ as an ordinary key", () => {
    const value = parseYaml("__proto__: {polluted: true}", DEPTH) as object
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
    expect(Object.keys(value)).toEqual(["__proto__"])
  })

  it("takes time in proportion to the text, with any number of errors", () => {
    expect(errorsIn(() => parseYaml("- *a\n".repeat(8000), DEPTH))).toHaveLength(21)
  })
})
