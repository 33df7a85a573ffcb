import { CRON_JOB_FIELDS } from "../../src/core/apis/rest-names.ts"

/** Documents with the scalars and structures that programs read differently, in the forms of Kubernetes and REST. */

export interface Generated {
  kind: "Job" | "CronJob" | "JobArray"
  manifest: (name: string) => string
  body: (name: string) => string
}

type Random = () => number

const NUMBERS =
  "600 0600 0x10 1_000 0o17 1e3 5.0 '5' 1:30 -1 ~ yes .inf 0b11 5.5 3 00 08 +7 0X1F 1e400 12 20 30 44 7 \"9\" 0.5 -0".split(
    " ",
  )
const TEXTS =
  "yes No on y plain \"yes\" 'no' 1:30 2001-01-01 0777 0o17 '0x1F' 1_000 ~ null '' 12 1.10 true 'true' NaN .nan = \"a: b\" a#b 100Gi 0b1 -1 ._5 1e3 \"\\u00e9\" '~' 5m".split(
    " ",
  )
const BOOLEANS = "true false yes off True 'true' 1 ~ n".split(" ")
const KEYS = "A B_1 'yes' y \"1\" 1 on C_D null x.y".split(" ")
const WORDS = 'a "b c" \'yes\' on 07 1_0 --epochs "10" ~ [] - -1'.split(" ")

/** Returns the lines of a map in block style, or the map in flow style. */
function mapText(entries: readonly (readonly [string, string])[], indent: string, random: Random): string {
  if (entries.length === 0) return " {}"
  const isFlow = random() < 0.3 && entries.every(([, value]) => !value.includes("\n"))
  if (isFlow) return ` { ${entries.map(([key, value]) => `${key}:${value}`).join(", ")} }`
  return entries.map(([key, value]) => `\n${indent}${key}:${value}`).join("")
}

class Writer {
  readonly #random: Random

  constructor(random: Random) {
    this.#random = random
  }

  pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random() * from.length)] as T
  }

  /** True in a part of the cases. */
  in(part: number): boolean {
    return this.#random() < part
  }

  /** Returns a scalar, mostly a harmless one: else nearly every document is rejected. */
  scalar(from: readonly string[], harmless: string): string {
    return ` ${this.in(0.75) ? harmless : this.pick(from)}`
  }

  map(from: readonly string[], harmless: string, indent: string): string {
    const keys = new Set(Array.from({ length: 1 + Math.floor(this.#random() * 3) }, () => this.key()))
    return mapText(
      [...keys].map((key) => [key, this.scalar(from, harmless)] as const),
      indent,
      this.#random,
    )
  }

  key(): string {
    return this.in(0.85) ? this.pick(["A", "B_1", "C_D", "x.y"]) : this.pick(KEYS)
  }

  words(): string {
    return ` [${Array.from({ length: 1 + Math.floor(this.#random() * 3) }, () => this.scalar(WORDS, "run").trim()).join(", ")}]`
  }

  text(entries: readonly (readonly [string, string])[], indent: string): string {
    return mapText(entries, indent, this.#random)
  }

  /** Returns the fields of a job's spec. vCPUs are the only value that Kubernetes and REST write differently. */
  job(cpu: string, indent: string): [string, string][] {
    const inner = `${indent}  `
    const resources: [string, string][] = [["cpu", ` ${cpu}`]]
    if (this.in(0.3)) resources.push(["memory", this.scalar(["1Gi", "1_0Gi", "024Gi", "24GB", "1024"], "2Gi")])
    if (this.in(0.3))
      resources.push(["gpu", this.pick([" { model: L4 }", " ~", " { model: L4, count: 02 }", " { vram: 24Gi }"])])
    const optional: [string, () => string][] = [
      ["env", () => (this.in(0.1) ? " {}" : this.map(TEXTS, '"1"', inner))],
      ["labels", () => this.map(TEXTS, "blue", inner)],
      ["args", () => this.words()],
      ["command", () => this.words()],
      ["timeoutSeconds", () => this.scalar(NUMBERS, "600")],
      ["maxRetries", () => this.scalar(NUMBERS, "2")],
      ["terminationGraceSeconds", () => this.scalar(NUMBERS, "30")],
      ["maxPreemptions", () => this.scalar(NUMBERS, "3")],
      ["fallbackAfter", () => this.scalar(NUMBERS, "1")],
      ["maxLostVms", () => this.scalar(NUMBERS, "1")],
      ["maxMemory", () => this.scalar(["1Gi", "128", "0128Gi"], "128Gi")],
      [
        "retryRules",
        () =>
          this.pick([
            " [{ action: newVm }]",
            " [{ action: no }]",
            " [{ exitCodes: [075, 100-119], action: fail }]",
            " ~",
          ]),
      ],
      ["maxHourlyPriceUsd", () => this.scalar(NUMBERS, "1.5")],
      ["maxCostUsd", () => this.scalar(NUMBERS, "10")],
      ["provisioning", () => this.scalar(["Spot", "no", "onDemand"], "spotFirst")],
      ["region", () => this.pick([" [eu]", " [eu, us]", " [no]", " []", " ~"])],
      ["cloud", () => this.pick([" []", " [aws]", " [aws, gcp]", " ~"])],
      ["tags", () => (this.in(0.2) ? " []" : this.words())],
      ["volumes", () => ` { data: { bucket: b, mountPath: /data, checkpoint:${this.scalar(BOOLEANS, "true")} } }`],
      ["unknownField", () => " 1"],
      ["image", () => " again"],
    ]
    const chosen = optional.filter(([name]) => this.in(name === "unknownField" || name === "image" ? 0.02 : 0.25))
    return [
      ["image", this.scalar(["alpine:03", "3", "1_0", "''", "~"], "alpine:3.22")],
      ["resources", this.text(resources, inner)],
      ...chosen.map(([name, value]): [string, string] => [name, value()]),
    ]
  }
}

const CPUS = [
  ["1", "1"],
  ['"2"', "2"],
  ["500m", "0.5"],
  ['"0.5"', "0.5"],
  ["02", "02"],
  ["1_0", "1_0"],
  ["0", "0"],
] as const

/** Returns a document. The forms have the same values, in the same spelling. */
export function generated(random: Random): Generated {
  const writer = new Writer(random)
  const kind = writer.pick(["Job", "Job", "CronJob", "JobArray"] as const)
  const [cpuOfKind, cpu] = writer.in(0.8) ? CPUS[0] : writer.pick(CPUS)
  const fields = writer.job("CPU", kind === "Job" ? "  " : "    ")
  const withCpu = (one: string): [string, string][] => fields.map(([name, value]) => [name, value.replace("CPU", one)])
  const others: [kindName: string, restName: string, value: string][] = []
  if (kind === "CronJob") {
    others.push(["schedule", "cron_spec", writer.scalar(["'*/5 * * * *'", "0", "'0 0 1 * '"], '"0 3 * * *"')])
    if (writer.in(0.4)) others.push(["active", "is_active", writer.scalar(BOOLEANS, "false")])
    const own = (name: keyof typeof CRON_JOB_FIELDS, values: readonly string[], common: string) => {
      if (writer.in(0.3)) others.push([name, CRON_JOB_FIELDS[name], writer.scalar(values, common)])
    }
    own("startingDeadlineSeconds", NUMBERS, "60")
    own("concurrencyPolicy", ["forbid", "no", "Allow", "~"], "Forbid")
    own("successfulJobsHistoryLimit", NUMBERS, "3")
    own("failedJobsHistoryLimit", NUMBERS, "0")
  }
  if (kind === "JobArray") {
    others.push(
      writer.in(0.5)
        ? ["size", "size", writer.scalar(NUMBERS, "3")]
        : ["matrix", "matrix", ` { lr: [${writer.scalar(TEXTS, '"0.1"')}, "2"] }`],
    )
    if (writer.in(0.4)) others.push(["maxFailed", "max_failed", writer.scalar(NUMBERS, "1")])
    if (writer.in(0.4)) others.push(["parallelism", "parallelism", writer.scalar(NUMBERS, "2")])
  }
  const block = (entries: readonly (readonly [string, string])[], indent: string) =>
    entries.map(([name, value]) => `${indent}${name}:${value}\n`).join("")
  const own = (index: 0 | 1) => others.map((other) => [other[index], other[2]] as const)
  return {
    kind,
    manifest: (name) =>
      `apiVersion: berth.dev/v1alpha1\nkind: ${kind}\nmetadata:\n  name: ${name}\nspec:\n${block(own(0), "  ")}` +
      (kind === "Job" ? block(withCpu(cpuOfKind), "  ") : `  jobDefinition:\n${block(withCpu(cpuOfKind), "    ")}`),
    body: (name) =>
      `name: ${name}\n${block(own(1), "")}` +
      (kind === "Job" ? block(withCpu(cpu), "") : `job_definition:\n${block(withCpu(cpu), "  ")}`),
  }
}
