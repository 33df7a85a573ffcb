import { CORE_SCHEMA, load } from "js-yaml"
import { expect, it } from "vitest"
import { readYaml, YamlError } from "../../src/core/apis/yaml.ts"
import { kubectl } from "../control-plane.ts"
import { SEED } from "../faults/effort.ts"
import { randomFrom } from "../random.ts"

/** Scalars that some version of YAML reads as no text. Others are made from them by changes of some characters. */
const SEEDS =
  "yes no on off y n Y N Yes YES On OFF yEs true True tRUE false ~ null Null nULL 1_000 1_0.5 _1 0x1F -0x1f 0X1F 0x_1f 0o17 0O17 -0o17 0b101 -0b11 0B1 010 0600 -010 09 008 00.5 01.5 1:30 190:20:30 2001-01-01 2001-12-14t21:59:43.10-05:00 inf NaN 1e3 1E+3 1.e3 .5 5. +1 -.5 1e400 1e-400 = 0 -0 00 0_0 0x 0b 0o8 1__0 1_ 1.10 0x1p3 1e e1 1.2.3 ._5 1._5 12e03 685.230_15e+03 4.e+3 - -- + . .. _ 1.- 0777 0o777 1e1_0 100Gi 500m 12345678901234567890".split(
    " ",
  )
const CHARACTERS = [..."0123456789_xobXOB+-.eEaAfFyYnNtu~l:"]

/** Returns scalars that stand alone in a line of YAML. */
function scalars(count: number): string[] {
  const random = randomFrom(SEED)
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T
  const changed = (text: string): string => {
    const at = Math.floor(random() * (text.length + 1))
    return text.slice(0, at) + pick(CHARACTERS) + text.slice(at + Math.floor(random() * 2))
  }
  const made = Array.from({ length: count }, () => changed(random() < 0.5 ? changed(pick(SEEDS)) : pick(SEEDS)))
  // These aren't plain scalars, and kubectl can't write an infinite number as JSON.
  const isPlain = (text: string) => !/^-?$|^---$|:$|^[-+]?\.(inf|nan)$/i.test(text)
  return [...new Set([...SEEDS, ...made])].filter(isPlain)
}

it(`berth apply reads each scalar as kubectl does, and rejects exactly those that YAML 1.2 reads differently (seed ${SEED})`, async () => {
  const all = scalars(4000)
  const lines = all.map((text, index) => `  k${index}: ${text}\n`).join("")
  const manifest = `apiVersion: example.com/v1\nkind: Scalars\nmetadata: {name: a}\nspec:\n${lines}`
  const read = await kubectl(["annotate", "--local", "-f", "-", "-o", "json", "a=b"], manifest)
  const { spec } = JSON.parse(read) as { spec: Record<string, unknown> }
  const wrong = all.flatMap((text, index) => {
    const [theirs, { k: core }] = [spec[`k${index}`], load(`k: ${text}`, { schema: CORE_SCHEMA }) as { k: unknown }]
    const ours = outcome(text)
    return ours === (theirs === core ? JSON.stringify(core) : "rejected") ? [] : [{ text, theirs, core, ours }]
  })
  expect(wrong).toEqual([])
  expect(all.filter((text) => outcome(text) === "rejected").length).toBeGreaterThan(150)
})

function outcome(text: string): string {
  try {
    return JSON.stringify((readYaml(`k: ${text}`)[0] as { k: unknown }).k)
  } catch (error) {
    if (error instanceof YamlError) return "rejected"
    throw error
  }
}
