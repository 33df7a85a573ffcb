import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { DEFINITIONS } from "../src/clouds/definitions.ts"

const ROOT = join(import.meta.dirname, "..")

/** Files outside of `src/clouds/` that may name a cloud. */
const EXCEPTIONS: readonly [files: RegExp, why: string][] = [
  [/^src\/client\/(schema\.d|providers)\.ts$/, "generated from the definitions"],
  [/^src\/options\.ts$/, "flags and variables for the networks of two clouds are stored forms"],
  [
    /^src\/core\/apis\/(connection|job|launch|offer)\.ts$/,
    "descriptions of fields in the kinds, which are stored forms",
  ],
  [/^src\/api\/resources\/connections\/schema\.ts$/, "descriptions and names of fields in the contract"],
  [/^src\/api\/resources\/[a-z]+\/routes\.ts$/, "examples in the document of the REST API"],
  [/^src\/cli\/commands\/(connection|smoke)\.ts$/, "examples in the help"],
]

/** Names of the providers with VMs or buckets. Docker Hub and GitHub are also what images and addresses name. */
const NAMES = Object.entries(DEFINITIONS).flatMap(([name, definition]) =>
  "buckets" in definition || "vms" in definition ? [name] : [],
)
const capital = (name: string) => name.charAt(0).toUpperCase() + name.slice(1)
const NAME = new RegExp(
  `(?<![A-Za-z])(${NAMES.flatMap((name) => [name, name.toUpperCase()]).join("|")})(?![a-z])` +
    `|(${NAMES.map(capital).join("|")})(?![a-z])`,
)

/** Comments, and the names of imported packages. */
const IGNORED = /\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$|(?<=\bfrom )"[^."][^"]*"/gm

function linesWithNames(source: string): string[] {
  return source
    .replace(IGNORED, "")
    .split("\n")
    .filter((line) => NAME.test(line))
}

describe("a cloud is one folder", () => {
  it.each([
    ['const cloud = "aws"', true],
    ["const AWS_REGION = 1", true],
    ["awsBuckets()", true],
    ["openAzure()", true],
    ["// as on AWS", false],
    ["/** As on AWS. */", false],
    ['import { S3Client } from "aws-client"', false],
    ["const laws = drawsAzureus", false],
  ])("%s: %s", (line, isFound) => {
    expect(linesWithNames(line).length > 0).toBe(isFound)
  })

  const files = globSync("{src,dev}/**/*.{ts,tsx}", { cwd: ROOT })
    .map((file) => file.replaceAll("\\", "/"))
    .filter((file) => !file.startsWith("src/clouds/") && !/\.test\.tsx?$/.test(file))
  const naming = files.filter((file) => linesWithNames(readFileSync(join(ROOT, file), "utf8")).length > 0)

  it("so its name is in no other code", () => {
    expect(naming.filter((file) => !EXCEPTIONS.some(([exception]) => exception.test(file)))).toEqual([])
  })

  it.each(EXCEPTIONS)("except in %s: %s", (exception) => {
    expect(naming.some((file) => exception.test(file))).toBe(true)
  })
})
