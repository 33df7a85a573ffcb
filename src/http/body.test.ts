import fc from "fast-check"
import { dump } from "js-yaml"
import { describe, expect, it } from "vitest"
import { parseJson } from "./json.ts"
import { problemOf } from "./problem.ts"
import { parseYaml } from "./yaml.ts"

const DEPTH = 32

/** What the caller is told: the detail, then each fault's. */
function told(parse: () => unknown): string[] {
  try {
    parse()
  } catch (error) {
    const problem = problemOf(error)
    expect(problem.status).toBe(400)
    return [problem.message, ...problem.errors.map(({ detail }) => detail)]
  }
  throw new Error("nothing was refused")
}

describe("parseJson", () => {
  it("reads what JSON.parse reads", () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(undefined, 2, "\t"), (value, space) => {
        const text = JSON.stringify(value, null, space)
        expect(parseJson(text, 1000)).toEqual(JSON.parse(text))
      }),
    )
  })

  it("refuses what JSON.parse refuses, always with a place", () => {
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
            expect(told(() => parseJson(text, DEPTH))[0]).toMatch(/line \d+, column \d+: expected .+ but found/)
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
  ])("says of %j where it breaks and what was expected", (text, expected) => {
    expect(told(() => parseJson(text, DEPTH))[0]).toContain(expected)
  })

  it("names all duplicate keys, of the same object only, also when they are written differently", () => {
    expect(told(() => parseJson('{"a":{"b":1,"\\u0062":2},"b":1,"a":2}', DEPTH)).slice(1)).toEqual([
      'line 1, column 13: duplicate key "\\u0062"',
      'line 1, column 31: duplicate key "a"',
    ])
  })

  it("bounds the nesting and survives any depth", () => {
    expect(parseJson("[".repeat(DEPTH) + "]".repeat(DEPTH), DEPTH)).toBeDefined()
    expect(told(() => parseJson("[".repeat(DEPTH + 1) + "]".repeat(DEPTH + 1), DEPTH))[0]).toMatch(/deeper than 32/)
    expect(told(() => parseJson("[".repeat(250_000), DEPTH))[0]).toMatch(/deeper/)
  })

  it("takes a time in proportion to the text, however many faults it has", () => {
    const text = `{${Array.from({ length: 40_000 }, () => '"a":1').join(",")}}`
    expect(told(() => parseJson(text, DEPTH))).toHaveLength(51)
    expect(parseJson(`"${"\\n".repeat(130_000)}"`, DEPTH)).toHaveLength(130_000)
  })
})

describe("parseYaml", () => {
  it("reads what it is written from", () => {
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
        const plain: unknown = JSON.parse(JSON.stringify(value))
        expect(parseYaml(dump(plain, { noRefs: true }), 1000)).toEqual(plain)
      }),
    )
  })

  it("reads JSON, which is YAML", () => {
    expect(parseYaml('{"image": "a", "env": {"A": "1"}}', DEPTH)).toEqual({ image: "a", env: { A: "1" } })
  })

  it("is YAML 1.2 core: yes, no, on and times of the day are strings", () => {
    const text =
      "a: yes\nb: no\nc: on\nd: 12:30:00\ne: 2026-01-01\nf: 0o17\ng: 0x1f\nh: 1e3\ni: ~\nj: True\nk: 0\nl: 00:10\nm: -0.5"
    expect(parseYaml(text, DEPTH)).toEqual({
      a: "yes",
      b: "no",
      c: "on",
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
    ["a: 010", "line 1, column 4: a number with a leading zero"],
    ["a: -01", "line 1, column 4"],
    ["a: [1, 007]", "line 1, column 8"],
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
    ["# nothing", "the body must have one document, not 0"],
  ])("refuses %j", (text, expected) => {
    expect(
      told(() => parseYaml(text, DEPTH))
        .slice(1)
        .join("\n"),
    ).toContain(expected)
  })

  it.each([
    ["a: 1\na: 2", /line 2, column 1: duplicated mapping key/],
    ["a: b: c", /line 1, column 5/],
    ["a:\n\tb: 1", /line 2, column 1: tab/],
    ["? [a]\n: 1", /complex keys/],
    ["[".repeat(100_000), /maxDepth/],
    ["a: 'b", /line 1/],
  ])("says of %j where it breaks", (text, expected) => {
    expect(told(() => parseYaml(text, DEPTH))[0]).toMatch(expected)
  })

  it("does not mind quoted strings that look like something else", () => {
    const text = '"<<": \'010\'\n\'1\': "*x"\n"true": "!!str"\nzip: \'00501\''
    expect(parseYaml(text, DEPTH)).toEqual({ "<<": "010", 1: "*x", true: "!!str", zip: "00501" })
  })

  it("lets a key __proto__ be a key", () => {
    const value = parseYaml("__proto__: {polluted: true}", DEPTH) as object
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
    expect(Object.keys(value)).toEqual(["__proto__"])
  })

  it("takes a time in proportion to the text, however many faults it has", () => {
    expect(told(() => parseYaml("- *a\n".repeat(50_000), DEPTH))).toHaveLength(51)
  })
})
