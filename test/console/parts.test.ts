import { execFileSync } from "node:child_process"
import xterm from "@xterm/headless"
import { Command } from "commander"
import fc from "fast-check"
import { load } from "js-yaml"
import { describe, expect, it } from "vitest"
import { checkCreation as checkArray } from "../../src/api/resources/arrays/translate.ts"
import { checkCreation as checkCronJob } from "../../src/api/resources/cronjobs/translate.ts"
import { checkSubmission, toJobSpec } from "../../src/api/resources/jobs/submission.ts"
import { jobOptions, buildSubmission as submissionByFlags } from "../../src/cli/submission.ts"
import type { JobPlan, JobRecord, JobSubmission } from "../../src/client/client.ts"
import { toSubmission, withoutEmpty } from "../../src/client/resubmission.ts"
import { parseSegments, plain } from "../../src/console/ansi.ts"
import { keptMonths, roundedUp, stackCosts } from "../../src/console/costs.ts"
import { nextTicks } from "../../src/console/cron.ts"
import {
  fillForm,
  keptIn,
  nameFor,
  neededIn,
  parseWords,
  placed,
  readForm,
  type Shape,
} from "../../src/console/draft.ts"
import { ago, bytes, duration, usd } from "../../src/console/format.ts"
import { LogBuffer } from "../../src/console/log-buffer.ts"
import { LogRows, ROW_HEIGHT, RowWindow } from "../../src/console/log-rows.ts"
import { completions, lastName, namesText, pathOf, standingOf, type Waiting } from "../../src/console/order.ts"
import { capNotes, sumOf, verdictText } from "../../src/console/plan.ts"
import { shellWord, toBerthRun, toCurl, toManifest, toYaml } from "../../src/console/spec.ts"
import { type JobSpec, JobSpecSchema, type StoredJob } from "../../src/core/apis/job.ts"
import { nextTick, scheduleError } from "../../src/core/apis/schedule.ts"
import { toRecord } from "../../src/core/records/job.ts"
import { tqdmBar } from "./tqdm.ts"

/** The pure parts of the console. */
describe("the log buffer", () => {
  const bufferOf = (...pieces: string[]): LogBuffer => {
    const buffer = new LogBuffer()
    for (const piece of pieces) buffer.append(new TextEncoder().encode(piece))
    return buffer
  }

  it("has the lines of a text, in whatever pieces it arrives", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom("a", "\n", "ä", "語", " ") }),
        fc.integer({ min: 1, max: 5 }),
        (text, size) => {
          const whole = new TextEncoder().encode(text)
          const buffer = new LogBuffer()
          for (let at = 0; at < whole.length; at += size) buffer.append(whole.subarray(at, at + size))
          const lines = text.endsWith("\n") || text === "" ? text.split("\n").slice(0, -1) : text.split("\n")
          expect(Array.from({ length: buffer.lineCount }, (_, index) => buffer.line(index))).toEqual(lines)
        },
      ),
    )
  })

  it("finds the lines that a search by lines finds", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "B", "b", "\n", "é"), maxLength: 200 })
    fc.assert(
      fc.property(
        letters,
        fc.string({ unit: fc.constantFrom("a", "b", "A", "é"), minLength: 1, maxLength: 3 }),
        (text, wanted) => {
          const buffer = bufferOf(text)
          const lines = Array.from({ length: buffer.lineCount }, (_, index) => buffer.line(index))
          const expected = lines.flatMap((line, index) =>
            line.toLowerCase().includes(wanted.toLowerCase()) ? [index] : [],
          )
          expect(buffer.find(wanted, { from: 0, to: buffer.lineCount })).toEqual(expected)
          const half = Math.floor(buffer.lineCount / 2)
          const halves = [
            { from: 0, to: half },
            { from: half, to: buffer.lineCount },
          ]
          expect(halves.flatMap((range) => buffer.find(wanted, range))).toEqual(expected)
        },
      ),
    )
  })

  it("counts the rows of wrapped lines, also of a last line that grows", () => {
    const buffer = bufferOf("12345678901\n\nshort\n語語語語語語\nlast")
    const rows = new LogRows(buffer, 10)
    expect([0, 1, 2, 3, 4].map((line) => rows.rowOf(line))).toEqual([0, 2, 3, 4, 6])
    expect(rows.count).toBe(7)
    buffer.append(new TextEncoder().encode(" grows longer"))
    expect(rows.count).toBe(8)
    expect([0, 1, 2, 3, 4, 5, 6, 7].map((row) => rows.lineAt(row))).toEqual([0, 0, 1, 2, 3, 3, 4, 4])
  })
})

describe("the window over rows", () => {
  it("reaches the last row at the end of its scrollbar, with few rows and with many", () => {
    for (const rows of [10, 1000, 30_000_000]) {
      const view = new RowWindow(rows, 400)
      const end = Math.max(0, view.height - 400)
      expect(Math.ceil(view.topAt(end) + 400 / ROW_HEIGHT)).toBeGreaterThanOrEqual(Math.min(rows, 20))
      expect(view.scrolledTo(rows)).toBeCloseTo(end)
      expect(view.height).toBeLessThanOrEqual(8_000_000)
    }
  })
})

/** Returns the lines of a text as a real terminal shows them in the end. */
async function onTerminal(text: string): Promise<string[]> {
  const terminal = new xterm.Terminal({ cols: 1000, rows: 200, convertEol: true, allowProposedApi: true })
  await new Promise<void>((resolve) => terminal.write(text, resolve))
  const { active } = terminal.buffer
  const lines = text.split("\n").map((_, index) => active.getLine(index)?.translateToString(true) ?? "")
  terminal.dispose()
  return lines
}

describe("lines with control characters", () => {
  const bufferOf = (text: string, cuts: readonly number[]): LogBuffer => {
    const whole = new TextEncoder().encode(text)
    const buffer = new LogBuffer()
    const places = [0, ...cuts.map((cut) => Math.min(cut, whole.length)).toSorted((a, b) => a - b), whole.length]
    for (const [index, end] of places.slice(1).entries()) {
      buffer.append(whole.subarray(places[index], end))
      // A line is read while it grows.
      if (buffer.lineCount > 0) buffer.line(buffer.lineCount - 1)
    }
    return buffer
  }
  const units = ["a", "bc", "\r", "\r\n", "\n", "\b", "\t", "語", "e\u0301", "\x1b[0m", "\x1b[1;31m", "\x1b(B"]
  const sequences = ["K", "0K", "1K", "2K", "C", "3C", "D", "2D", "G", "5G", "J"].map((each) => `\x1b[${each}`)

  it("are what a real terminal shows in the end, wherever the log was cut", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: fc.constantFrom(...units, ...sequences), maxLength: 60 }),
        fc.array(fc.nat(200), { maxLength: 4 }),
        async (text, cuts) => {
          const buffer = bufferOf(text, cuts)
          const lines = await onTerminal(text)
          const own = Array.from({ length: buffer.lineCount }, (_, index) => buffer.line(index))
          for (const columns of [1, 3, 10]) {
            const rows = own.map((line) => Math.max(1, Math.ceil(columnsOf(untabbed(line)) / columns)))
            expect(own.map((_, index) => buffer.rowsOf(index, columns))).toEqual(rows)
          }
          // A tab is a character here, and columns there.
          const shown = own.map((line) => untabbed(line).trimEnd())
          expect(shown).toEqual(lines.slice(0, buffer.lineCount).map((line) => line.trimEnd()))
          for (const wanted of ["a", "bcb", "ab", "語a"]) {
            const found = buffer.find(wanted, { from: 0, to: buffer.lineCount })
            expect(found).toEqual(own.flatMap((line, index) => (line.includes(wanted) ? [index] : [])))
          }
        },
      ),
      { numRuns: 150 },
    )
  })

  it("are what a real terminal shows in the end, however long they are", async () => {
    const steps = fc.array(fc.constantFrom(...units.filter((unit) => !unit.includes("\n")), ...sequences), {
      minLength: 25,
      maxLength: 40,
    })
    await fc.assert(
      fc.asyncProperty(steps, fc.array(fc.tuple(fc.nat(40), fc.nat(3)), { maxLength: 6 }), async (parts, places) => {
        // Each part stands between enough text that is overwritten.
        const pieces = parts.map((part) => `${"long ".repeat(180)}\r${part}`)
        const text = pieces.join("")
        // Cuts are within the parts.
        const cuts = places.map(([part, at]) => Buffer.byteLength(pieces.slice(0, part).join("")) + 901 + at)
        const [shown] = await onTerminal(text)
        const buffer = bufferOf(text, cuts)
        expect(untabbed(buffer.line(0)).trimEnd()).toBe(shown?.trimEnd())
        buffer.append(new TextEncoder().encode("\n"))
        expect(buffer.longest).toBe(
          buffer
            .line(0)
            .replace(/\u0301/g, "")
            .replace(/語/g, "  ").length,
        )
      }),
      { numRuns: 30 },
    )
  })

  const WIDTHS: Record<string, number> = { 語: 2, "\u0301": 0 }

  function untabbed(line: string): string {
    let columns = 0
    return [...line]
      .map((character) => {
        const size = character === "\t" ? 8 - (columns % 8) : (WIDTHS[character] ?? 1)
        columns += size
        return character === "\t" ? " ".repeat(size) : character
      })
      .join("")
  }

  function columnsOf(line: string): number {
    return [...line].reduce((sum, character) => sum + (WIDTHS[character] ?? 1), 0)
  }

  it("have each step of a bar with 10,000 steps while it moves, and 100 % in the end", () => {
    const buffer = new LogBuffer()
    let steps = 0
    for (const piece of tqdmBar(10_000)) {
      buffer.append(new TextEncoder().encode(piece))
      steps++
      if (steps % 1000 === 1) expect(buffer.line(0)).toMatch(new RegExp(`^train: +\\d+%\\|.* ${steps - 1}/10000 `))
    }
    expect(buffer.length).toBeGreaterThan(700_000)
    expect(buffer.lineCount).toBe(1)
    expect(buffer.line(0)).toMatch(/^train: 100%\|█+\| 10000\/10000 /)
    expect(buffer.rowsOf(0, 200)).toBe(1)
    expect(buffer.longest).toBe(buffer.line(0).length)
    expect(buffer.find("9999/10000", { from: 0, to: 1 })).toEqual([])
    expect(buffer.find("10000/10000", { from: 0, to: 1 })).toEqual([0])
  })

  it("show one of the bars if they move the cursor up, never a mixture", () => {
    const text = "\router:  50%|█████     |\n\rinner: 100%|██████████| 10/10\x1b[A\router: 60%\n\rinner:  10%|\x1b[A\n"
    const buffer = bufferOf(text, [])
    const lines = Array.from({ length: buffer.lineCount }, (_, index) => buffer.line(index))
    expect(lines).toEqual(["outer:  50%|█████     |", "outer: 60%", "inner:  10%|"])
  })
})

describe("ANSI sequences", () => {
  it("become styles, and are left out of the text", () => {
    expect(parseSegments("a \x1b[1;31mred\x1b[0m b")).toEqual([
      { text: "a ", styles: [] },
      { text: "red", styles: ["bold", "fg-1"] },
      { text: " b", styles: [] },
    ])
    expect(parseSegments("\x1b[38;5;196mx\x1b[48;2;0;0;255my\x1b[39;49mz").map(({ styles }) => styles)).toEqual([
      ["fg-9"],
      ["fg-9", "bg-12"],
      [],
    ])
    expect(plain("\x1b]0;title\x07\x1b[2K10 %\r 50 %\r100 %\r")).toBe("100 %")
  })
})

const JOB = {
  namePrefix: "train",
  image: "ghcr.io/acme/train:3",
  command: ["python", "-c", "print('a b')"],
  args: ["--note", "two words", "it's", "", "yes", "12"],
  env: { A: "true", "WITH NEWLINE": "a\nb: c", EMPTY: "", HASH: "a #b" },
  secretEnv: { TOKEN: { secret: "hub", key: "token" } },
  volumes: { data: { bucket: "acme", prefix: "corpus/x", mountPath: "/data", connection: "aws" } },
  resources: { cpu: 4, memory: "15Gi", gpu: { model: "L4", count: 2 } },
  region: ["eu", "us-east-1"],
  provisioning: "spotFirst",
  maxHourlyPriceUsd: 2.5,
  timeoutSeconds: 7200,
  maxRetries: 2,
  labels: { team: "vision" },
  tags: ["nightly", "a:b"],
} as unknown as JobSubmission

/** Fields that the form of a job keeps, but does not show. */
const UNSHOWN = {
  workdir: { sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", path: "/src" },
  terminationGraceSeconds: 60,
  priority: 50,
  concurrencyGroup: { name: "db", limit: 2 },
  maxPreemptions: 4,
  idleLimit: { seconds: 3600, gpuPercent: 0 },
  reuse: { idleSeconds: 300, key: "small" },
  debug: { keepSeconds: 3600 },
  retryRules: [{ reasons: ["OutOfMemory"], exitCodes: [137], action: "newVm", limit: 2 }, { action: "fail" }],
  fallbackAfter: 2,
  ttlSecondsAfterFinished: 3600,
}
const CHECKPOINTS = {
  state: { bucket: "acme", prefix: "state", mountPath: "/state", connection: "aws", checkpoint: true },
  other: { bucket: "acme", mountPath: "/my checkpoints", checkpoint: true },
}

describe("the submission of a job's record", () => {
  it.each([
    ["maxCostUsd", { reuse: undefined, maxCostUsd: 20 }],
    ["reuse", {}],
  ])("makes a job with the same specification, with %s", (_field, limits) => {
    const { resources, region, namePrefix: _, ...same } = JOB
    const fields = {
      ...UNSHOWN,
      maxQueueSeconds: 5400,
      maxMemory: "128Gi",
      maxLostVms: 0,
      after: [{ job: "prepare" }, { array: "sweep", outcome: "ended" }],
      cloud: ["aws"],
      volumes: { ...JOB.volumes, ...CHECKPOINTS },
    }
    const spec = { ...same, ...fields, region, resources: { ...resources, cpu: "4" }, ...limits } as unknown as JobSpec
    const known = ["maxCostUsd", ...Object.keys(spec)]
    expect(Object.keys(JobSpecSchema.properties).filter((field) => !known.includes(field))).toEqual([
      "cancelled",
      "debugEnded",
    ])
    const metadata = { uid: "u", name: "train-1", creationTimestamp: "2026-11-24T10:00:00Z" }
    const record = toRecord({ metadata, spec } as StoredJob, { projectId: "p", organizationId: "o" })
    const again = checkSubmission(toSubmission(record as JobRecord), {
      ...{ projectId: "p", organizationId: "o" },
      catalogueErrors: () => [],
    })
    expect("submission" in again ? toJobSpec(again.submission) : again).toEqual(spec)
  })
})

/** Submissions with any of the fields that flags can say, and values that need quotes. */
const SUBMISSIONS = (() => {
  const text = fc.string({ unit: fc.constantFrom("a", "B", "7", "-", " ", "'", '"', "$", "=", ":", "\n", "é") })
  const some = fc.string({ unit: fc.constantFrom("a", "b", "7", "-"), minLength: 1, maxLength: 8 })
  const name = fc.tuple(fc.constantFrom("A", "b"), some).map((parts) => parts.join(""))
  const count = fc.nat({ max: 1_000_000 })
  const usd = fc.double({ min: 1e-9, max: 1e6, noNaN: true })
  const size = fc.nat({ max: 999 }).map((amount) => `${amount}Gi`)
  const gpu = fc.oneof(size, fc.record({ model: name, count }), fc.record({ model: name, vram: size }))
  const volume = fc.record(
    {
      bucket: some,
      mountPath: text.map((path) => `/${path}`),
      prefix: text,
      connection: name,
      checkpoint: fc.constant(true),
      readOnly: fc.constant(true),
      cache: fc.constant("reads"),
    },
    { requiredKeys: ["bucket", "mountPath"] },
  )
  const optional = fc.record(
    {
      ...{ command: fc.array(text, { minLength: 1 }), args: fc.array(text, { minLength: 1 }) },
      env: fc.dictionary(name, text, { minKeys: 1 }),
      secretEnv: fc.dictionary(name, fc.record({ secret: name, key: name }), { minKeys: 1 }),
      volumes: fc.array(volume, { minLength: 1, maxLength: 2 }).map((volumes) => Object.fromEntries(volumes.entries())),
      resources: fc.record({ cpu: usd, memory: size, disk: size, gpu }, { requiredKeys: ["cpu"] }),
      region: fc.array(name, { minLength: 1 }),
      cloud: fc.constantFrom(["aws"], ["gcp", "azure"]),
      provisioning: fc.constantFrom("spot", "spotFirst"),
      ...{ priority: fc.integer({ min: -100, max: 100 }), concurrencyGroup: fc.record({ name, limit: count }) },
      ...{ maxPreemptions: count, fallbackAfter: count, maxRetries: count },
      ...{ maxLostVms: count, maxMemory: size },
      retryRules: fc.constantFrom([{ exitCodes: [75], action: "newVm" }], [{ exitCodes: [1, "2-9"], action: "newVm" }]),
      after: fc.array(
        fc.oneof(fc.record({ job: some }), fc.record({ array: some, outcome: fc.constantFrom("ended", "succeeded") })),
        { minLength: 1, maxLength: 3 },
      ),
      ...{ maxHourlyPriceUsd: usd, maxCostUsd: usd },
      idleLimit: fc.record(
        { seconds: count, gpuPercent: fc.nat(100), cpuPercent: fc.nat(100) },
        { requiredKeys: ["seconds"] },
      ),
      reuse: fc.record({ idleSeconds: count, key: name }, { requiredKeys: ["idleSeconds"] }),
      debug: fc.record({ keepSeconds: count }),
      ...{ timeoutSeconds: count, maxQueueSeconds: count, terminationGraceSeconds: count },
      ...{ labels: fc.dictionary(name, text, { minKeys: 1 }), tags: fc.array(text, { minLength: 1 }) },
    },
    { requiredKeys: [] },
  )
  const named = fc.oneof(fc.record({ name }), fc.record({ namePrefix: name }), fc.constant({}))
  return fc
    .tuple(named, name, optional)
    .map(([own, image, fields]) => ({ ...own, image, ...fields }) as unknown as JobSubmission)
})()

/** Returns the job that `berth run` submits, if a shell runs the command. */
function submissionByShell(command: string): JobSubmission {
  const print = 'berth() { for word; do printf "%s\\0" "$word"; done; }'
  const words = execFileSync("sh", ["-c", `${print}\n${command}`], { encoding: "utf8" })
    .split("\0")
    .slice(1, -1)
  const parser = new Command().argument("[args...]")
  for (const option of jobOptions()) parser.addOption(option)
  parser.parse(words, { from: "user" })
  return submissionByFlags({ flags: parser.opts(), args: parser.args, environment: {} })
}

/** Returns a job in the form in which flags give it: one program, then arguments; volumes have no names of their own. */
function comparable({ command, args, volumes, ...job }: JobSubmission): object {
  const words = [...(command ?? []).slice(1), ...(args ?? [])]
  const [mounted, kept] = [false, true].map((isKept) =>
    Object.values(volumes ?? {}).filter(({ checkpoint }) => (checkpoint === true) === isKept),
  )
  return { ...job, program: command?.[0], words, mounted, kept }
}

describe("the forms of a specification", () => {
  it("are YAML that a parser reads as the same", () => {
    expect(load(toYaml(JOB))).toEqual(JOB)
    const numbers = { args: [".0", ".5e3", ".inf", "1_0", "0x1f", "./run", "..", ".", "=", "<<", "1:30", "_1"] }
    expect(load(toYaml(numbers))).toEqual(numbers)
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.string(),
          fc.oneof(
            fc.string(),
            fc.array(fc.string()),
            fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0),
            fc.boolean(),
          ),
        ),
        (value) => {
          const { __proto__: _, ...own } = value as Record<string, unknown>
          expect(load(toYaml(own)) ?? {}).toEqual(own)
        },
      ),
    )
  })

  it("are a manifest, a curl command and a command line", () => {
    expect(load(toManifest(JOB))).toMatchObject({
      kind: "Job",
      metadata: { generateName: "train-" },
      spec: { image: "ghcr.io/acme/train:3", resources: { cpu: "4", gpu: { model: "L4", count: 2 } } },
    })
    expect(toCurl(JOB, "https://berth.example.com/projects/acme/1")).toContain(
      "https://berth.example.com/projects/acme/1/jobs",
    )
    const more = { maxCostUsd: 20, terminationGraceSeconds: 60, volumes: { state: CHECKPOINTS.state } }
    const flags = ["--max-cost 20", "--grace 1m", "--checkpoint acme/state:/state@aws"]
    for (const flag of flags) expect(toBerthRun({ ...JOB, ...more })).toContain(flag)
    // A command line uploads a folder. It can't name an upload.
    expect(toBerthRun({ ...JOB, workdir: UNSHOWN.workdir })).toBeUndefined()
    const command = toBerthRun(JOB) ?? ""
    expect(command).toContain("--gpu L4:2")
    expect(command).toContain("--volume acme/corpus/x:/data@aws")
    expect(command).toContain(`-- -c 'print('\\''a b'\\'')' --note 'two words' 'it'\\''s' '' yes 12`)
  })

  it("are a command line whose flags give the same job", () => {
    const printed = new Set<string>()
    fc.assert(
      fc.property(SUBMISSIONS, (job) => {
        const command = toBerthRun(job)
        if (command === undefined) return
        for (const [, flag = ""] of command.matchAll(/^ {2}(--[a-z-]+)/gm)) printed.add(flag)
        expect(comparable(submissionByShell(command))).toEqual(comparable(job))
      }),
    )
    const ofFiles = ["--env-file", "--workdir"]
    const flags = jobOptions().flatMap(({ long }) => (ofFiles.includes(long ?? "") ? [] : [long]))
    expect([...printed].sort()).toEqual(flags.sort())
  })

  it("are no command line for what flags can't say", () => {
    const volume = { bucket: "acme", mountPath: "/data" }
    const unsayable: Partial<JobSubmission>[] = [
      { ttlSecondsAfterFinished: 60 },
      { resources: { gpu: { model: "A100", vram: "80Gi", count: 2 } as never } },
      { resources: { gpu: { count: 2 } as never } },
      { volumes: { data: { ...volume, mountPath: "/a@b" } } },
      { volumes: { data: { ...volume, mountPath: "/a:ro" } } },
      { volumes: { data: { ...volume, prefix: "a:b" } } },
      // The flag is that of one volume.
      { volumes: { a: { ...volume, checkpoint: true }, b: { ...volume, mountPath: "/b", checkpoint: true } } },
      { labels: { "a=b": "c" } },
      { timeoutSeconds: 1.5 },
      { after: [{ job: "a,b" }] },
    ]
    expect(unsayable.filter((fields) => toBerthRun({ image: "a", ...fields }) !== undefined)).toEqual([])
  })

  it("quote words as a shell reads them", () => {
    fc.assert(
      fc.property(fc.array(fc.string()), (words) => {
        expect(parseWords(words.map(shellWord).join(" "))).toEqual(words)
      }),
    )
    expect(parseWords("a 'b")).toBeUndefined()
  })
})

const OWNER = { projectId: "p", organizationId: "o", catalogueErrors: () => [] }

describe("the form of a job", () => {
  const again = (body: object, shape: Shape = "job") => readForm(shape, fillForm(shape, { ...body }), "unnamed")

  it("gives back any job that it was filled from, also what it can't show", () => {
    const job = { ...JOB, ...UNSHOWN, volumes: { ...JOB.volumes, ...CHECKPOINTS } }
    expect(again(job)).toEqual({ body: job, errors: {} })
    fc.assert(
      fc.property(SUBMISSIONS, (one) => {
        // A field that says the default is the same as none.
        const { body, errors } = again(one)
        expect(errors).toEqual({})
        expect(body).toEqual(withoutEmpty({ ...one, resources: withoutEmpty(one.resources ?? {}) }))
      }),
    )
  })

  it("names the controls whose value only the YAML shows", () => {
    const resources = { cpu: 2, gpu: { count: 2 } }
    const form = fillForm("job", {
      image: "a",
      env: { A: "b\nc" },
      resources,
      command: ["sh", "-c", "a\nb"],
      tags: ["a b"],
    })
    expect(keptIn("job", form).sort()).toEqual(["command", "env", "gpu", "tags"])
    expect(form.draft).toMatchObject({ env: "", gpu: "", command: "", cpu: "2" })
    const { body } = readForm("job", { ...form, draft: { ...form.draft, env: "B=1", gpu: "L4" } }, "")
    expect(body).toMatchObject({ env: { A: "b\nc", B: "1" }, resources: { cpu: 2, gpu: { model: "L4" } } })
  })

  it("names each text that it can't read at once, and reads the others", () => {
    const { draft, rest } = fillForm("array", { name: "n", size: 3, job_definition: { image: "a" } })
    const wrong = {
      cpu: "many",
      timeout: "soon",
      env: "A",
      after: "prepare:done",
      gpu: "L4:0",
      secretEnv: "T=value",
      values: "0",
      memory: "lots",
    }
    const { body, errors } = readForm("array", { draft: { ...draft, ...wrong, parallelism: "Infinity" }, rest }, "")
    expect(errors).toEqual({
      cpu: "many is not a number.",
      timeout: "soon is not a duration: write 90s, 30m, 2h, 1d or 1h30m.",
      env: "A has no value: write NAME=VALUE.",
      after: expect.stringMatching(/^prepare:done must name jobs or arrays/),
      gpu: expect.stringContaining("L4:0 is no GPU"),
      secretEnv: expect.stringMatching(/^T=… must name a Secret/),
      values: "It has 0, which is not a variable. Write a number, or NAME=VALUES such as lr=0.1,0.01.",
      parallelism: "Infinity is not a number.",
    })
    expect(body).toEqual({ name: "n", job_definition: { image: "a", resources: { memory: "lots" } } })
  })

  it("reads durations and numbers as people write them", () => {
    const form = fillForm("job", { image: "a" })
    const read = (texts: object) => readForm("job", { ...form, draft: { ...form.draft, ...texts } }, "").body
    const times = ["90s", "1h 30m", "2d", "60"].map((timeout) => read({ timeout })["timeoutSeconds"])
    expect(times).toEqual([90, 5400, 172_800, 60])
    expect(read({ cpu: " 1,5 ", env: " A = x \n\nB=y" })).toMatchObject({
      resources: { cpu: 1.5 },
      env: { A: " x ", B: "y" },
    })
    const after = [{ job: "prepare" }, { array: "sweep", outcome: "ended" }]
    for (const text of ["prepare,array/sweep:ended", " prepare,  array/sweep:ended, "])
      expect(read({ after: text })["after"]).toEqual(after)
    expect(fillForm("job", { image: "a", after }).draft.after).toBe("prepare,array/sweep:ended")
  })

  it("keeps the texts of each shape, and makes bodies that the API takes", () => {
    const values = fc.array(
      fc.string({ maxLength: 9 }).filter((text) => !text.includes("\0")),
      { minLength: 1, maxLength: 4 },
    )
    const matrix = fc.dictionary(fc.stringMatching(/^[A-Z]{1,5}$/), values, {
      minKeys: 1,
      maxKeys: 3,
      noNullPrototype: true,
    })
    const count = fc.integer({ min: 1, max: 99 })
    const after = fc.constantFrom([{ job: "prepare" }], [{ array: "sweep", outcome: "ended" }, { job: "a" }])
    const optional = { requiredKeys: [] }
    const arrays = fc.tuple(
      fc.oneof(fc.record({ size: count }), fc.record({ matrix })),
      fc.record({ parallelism: count, max_failed: count, ttl_seconds_after_finished: count, after }, optional),
    )
    const cronJobs = fc.record(
      {
        cron_spec: fc.constantFrom("@daily", "30 3 * * MON-FRI", "*/5 * * * *"),
        concurrency_policy: fc.constantFrom("Forbid", "Replace"),
        starting_deadline_seconds: count,
        ...{ successful_jobs_history_limit: count, failed_jobs_history_limit: count, is_active: fc.boolean() },
      },
      { requiredKeys: ["cron_spec"] },
    )
    const definition = { image: "ghcr.io/acme/train:3", resources: { cpu: 2 }, region: ["eu", "us"], cloud: ["aws"] }
    fc.assert(
      fc.property(arrays, cronJobs, ([shape, more], cronJob) => {
        const array = { name: "sweep", ...shape, ...more, job_definition: definition }
        const first = fillForm("array", array)
        const both = fillForm("cronjob", { name: "nightly", ...cronJob, job_definition: definition }, first)
        const read = (kind: Shape) => {
          const { body, errors } = readForm(kind, both, "unnamed")
          expect(errors).toEqual({})
          return body
        }
        expect(read("array")).toEqual({ ...array, name: "nightly" })
        expect(read("cronjob")).toEqual({ name: "nightly", ...cronJob, job_definition: definition })
        // A cronjob waits for nothing. What the array waits for is the same for a job.
        expect(read("job")).toEqual({ name: "nightly", ...definition, ...(more.after && { after: more.after }) })
        const checks = [
          checkArray(read("array"), OWNER),
          checkCronJob(read("cronjob"), OWNER),
          checkSubmission(read("job"), OWNER),
        ]
        for (const checked of checks) expect(checked).not.toHaveProperty("errors")
      }),
    )
  })

  it("names what is missing, gives a name, and places the API's errors", () => {
    const { draft } = fillForm("job", {})
    expect([neededIn("job", draft), neededIn("array", draft), neededIn("cronjob", draft)]).toEqual([
      ["image"],
      ["values", "image"],
      ["schedule", "image"],
    ])
    for (const image of ["ghcr.io/acme/Train_it:3", "a@sha256:b", "___", ""]) {
      const name = nameFor(image, "x1y2")
      expect(checkArray({ name, size: 1, job_definition: { image: "a" } }, OWNER)).not.toHaveProperty("errors")
    }
    const checked = checkArray(
      {
        name: "X",
        size: 0,
        after: [{ job: "Not a name" }],
        parallelism: 0,
        job_definition: { resources: { cpu: -1, gpu: { model: "" } }, workdir: 1 },
      },
      OWNER,
    )
    const errors = "errors" in checked ? checked.errors : []
    const fields = errors.map(({ pointer, detail }) => ({ field: pointer.slice(1).replaceAll("/", "."), detail }))
    const found = placed("array", fields)
    expect(Object.keys(found.errors).sort()).toEqual([
      ...["after", "cpu", "gpu", "image", "name", "parallelism", "values"],
    ])
    expect(found.others).toEqual([expect.stringContaining("workdir")])
  })
})

describe("the order of jobs", () => {
  const prepare = { job: "prepare", array: null, outcome: "succeeded" } as const
  const sweep = { job: null, array: "sweep", outcome: "ended" } as const
  const job = (more: Partial<JobRecord>): Waiting => {
    return { status: "queued", started_at: null, after: [prepare, sweep], waits_for: null, ...more }
  }
  const waits = job({
    waits_for: [
      { ...prepare, id: "u1" },
      { ...sweep, id: null },
    ],
  })

  it("shows the object that was meant, and not a later one of its name", () => {
    expect(standingOf(waits, prepare, { id: "u1", status: "running" })).toEqual({ status: "running" })
    for (const found of [null, { id: "u2", status: "running" } as const])
      expect(standingOf(waits, prepare, found)).toEqual({ note: "was deleted before it ended" })
    expect(standingOf(waits, sweep, null)).toEqual({ note: "doesn't exist yet" })
    expect(standingOf(waits, sweep, { id: "u3", status: "queued" })).toEqual({ status: "queued" })
  })

  it("shows outcomes once they are known, also after deletions", () => {
    for (const past of [
      job({}),
      job({ status: "running" }),
      job({ status: "failed", started_at: "2026-11-24T10:00:00Z" }),
    ]) {
      for (const found of [null, { id: "u2", status: "queued" } as const])
        expect(standingOf(past, prepare, found)).toEqual({ status: "succeeded" })
      expect(standingOf(past, sweep, null)).toEqual({ note: "ended, and is deleted" })
      expect(standingOf(past, sweep, { id: "u3", status: "running" })).toEqual({ note: "ended" })
      expect(standingOf(past, sweep, { id: "u3", status: "failed" })).toEqual({ status: "failed" })
    }
  })

  it("claims no outcome for what ended before it started", () => {
    const counts = { pending: 0, queued: 0, booting: 0, running: 0, succeeded: 0, failed: 0, cancelled: 3 }
    const array: Waiting = { status: "cancelled", after: [prepare], waits_for: null, counts }
    for (const ended of [job({ status: "failed" }), job({ status: "cancelled" }), array]) {
      expect(standingOf(ended, prepare, { id: "u1", status: "failed" })).toEqual({ status: "failed" })
      expect(standingOf(ended, prepare, null)).toEqual({ note: "doesn't exist" })
    }
    const hasRun: Waiting = { ...array, counts: { ...counts, succeeded: 1 } } as Waiting
    expect(standingOf(hasRun, prepare, null)).toEqual({ status: "succeeded" })
  })

  it("has names that lead to pages, and are counted", () => {
    expect([prepare, sweep].map(pathOf)).toEqual(["/jobs/prepare", "/arrays/sweep"])
    expect(namesText([prepare, sweep], 2)).toBe("prepare, array/sweep")
    expect(namesText([prepare], 12)).toBe("prepare and 11 more")
  })

  it("proposes names for the last one of a text", () => {
    const names = ["prepare", "train", "array/sweep"]
    expect(["", "pre", "prepare, array/sw", "array/sweep:en"].map(lastName)).toEqual([
      ...["", "pre", "array/sw", "array/sweep"],
    ])
    expect(completions("", names)).toEqual(names)
    expect(completions("prepare:ended, array/sw", names)).toEqual([
      "prepare:ended, train",
      "prepare:ended, array/sweep",
    ])
    expect(completions("train", names)).toEqual(["prepare", "train", "train:ended", "train:failed", "array/sweep"])
  })

  it("is said in words by a plan", () => {
    const texts = [
      ["waits", "WaitsForJob", "The job would wait"],
      ["waits", "DependencyCycle", "The job would never start"],
      ["noOffer", "DependencyFailed", "The job would fail"],
      ["noOffer", "NoOffer", "Nothing fits"],
    ] as const
    for (const [verdict, reason, text] of texts) expect(verdictText({ verdict, reason })).toBe(text)
  })
})

describe("the price of many jobs", () => {
  const JOB_PLAN = { name: "a-0", estimated_cost: 2, placements: [] } as unknown as JobPlan
  const array = {
    name: "a",
    size: 30,
    parallelism: 10,
    estimated_cost: 60,
    max_cost_usd: 90,
    hourly_usd: 5,
    job: JOB_PLAN,
  }
  const plan = { dry_run: true, ...array }
  const cap = {
    ...({ level: "project", on_exceeded: "wait", reserve: "expected" } as const),
    ...{ max_vms: null, max_gpus: null, gpus: 0, max_hourly_usd: null, max_monthly_usd: null, left_usd: null },
    ...{ max_idle_vms: null, idle_vms: 0 },
    ...{ vms: 2, hourly_usd: 1, spent_usd: 40, reserved_usd: 0 },
  }

  it("is the sum of an array, and that of a month of a cronjob", () => {
    expect(sumOf(plan)).toEqual([
      "30 jobs: about $60.00 in total, $2.00 each. This counts each index once; a retry costs more.",
      "At most 10 at the same time: $5.00 an hour.",
      "At most $90.00 in total.",
    ])
    const monthly = { dry_run: true, name: "c", runs_per_month: 21.75, estimated_cost: 2, estimated_monthly_cost: 43.5 }
    expect(sumOf({ ...monthly, job: JOB_PLAN }).join(" ")).toBe(
      "One run: about $2.00. The schedule has about 21.8 runs a month: about $43.50 a month. This is an estimate, at the prices of now.",
    )
    expect(sumOf(JOB_PLAN)).toEqual([])
    expect(capNotes({ ...monthly, job: JOB_PLAN }, [{ ...cap, max_monthly_usd: 43, left_usd: 3 }])).toEqual([
      expect.stringContaining("The cap of the project is $43.00 a month. All runs of a month cost about $43.50"),
    ])
    expect(capNotes({ ...monthly, job: JOB_PLAN }, [{ ...cap, max_monthly_usd: 44, left_usd: 4 }])).toEqual([])
  })

  it("names each cap that it breaks, and no other", () => {
    expect(capNotes(plan, [cap])).toEqual([])
    expect(capNotes(plan, [{ ...cap, max_vms: 12, max_hourly_usd: 6, max_monthly_usd: 100, left_usd: 60 }])).toEqual([])
    expect(capNotes(plan, [{ ...cap, max_vms: 11, max_hourly_usd: 5, max_monthly_usd: 100, left_usd: 59 }])).toEqual([
      "The cap of the project leaves $59.00 of $100.00 this month. All jobs cost about $60.00: the rest waits for the next month.",
      "The cap of the project leaves $4.00 an hour: fewer than 10 jobs run at the same time.",
      "The cap of the project leaves 9 machines: the other jobs wait.",
    ])
  })
})

describe("ticks of a schedule", () => {
  const field = (...values: string[]) => fc.constantFrom("*", ...values)
  const schedules = fc
    .tuple(
      field("0", "*/7", "5-20/5,50", "59"),
      field("3", "*/6", "9-17"),
      field("1", "31", "*/2", "1-5,3", "5,*"),
      field("2", "JAN-MAR", "*/5"),
      field("0", "7", "MON-FRI", "1/2", "5-7", "*/2"),
    )
    .map((fields) => fields.join(" "))

  it("are those of the operator", () => {
    const times = fc.date({ min: new Date("2024-01-01"), max: new Date("2028-01-01"), noInvalidDate: true })
    fc.assert(
      fc.property(fc.oneof(schedules, fc.constantFrom("@hourly", "@weekly", "@yearly")), times, (schedule, after) => {
        fc.pre(scheduleError(schedule) === undefined)
        const expected = [1, 2, 3].reduce<Date[]>(
          (ticks) => [...ticks, nextTick(schedule, ticks.at(-1) ?? after) as Date],
          [],
        )
        expect(nextTicks(schedule, after, 3)).toEqual(expected)
      }),
    )
  })
})

describe("numbers", () => {
  it("have as many digits as they need", () => {
    expect([1234.5, 0.7548, 0.0061, 0, 2].map((value) => usd(value).replace(/^US/, ""))).toEqual([
      "$1,234.50",
      "$0.755",
      "$0.0061",
      "$0.00",
      "$2.00",
    ])
    expect([0, 59.6, 3600, 7500, 90_061].map(duration)).toEqual(["0 s", "1 min", "1 h", "2 h 5 min", "1 d 1 h"])
    expect([0, 1536, 67_108_864].map(bytes)).toEqual(["0 B", "1.5 KiB", "64 MiB"])
    const now = Date.parse("2026-11-24T12:00:00Z")
    expect(["2026-11-24T11:55:00Z", "2026-11-24T14:30:00Z", "2026-11-24T12:00:02Z"].map((at) => ago(at, now))).toEqual([
      "5 min ago",
      "in 2 h",
      "now",
    ])
  })
})

describe("costs", () => {
  const row = (key: string, by_cloud: Record<string, number>) => {
    const cost_usd = Object.values(by_cloud).reduce((sum, usd) => sum + usd, 0)
    return { key, cost_usd, by_cloud }
  }
  const report = (rows: ReturnType<typeof row>[]) => {
    const total_usd = rows.reduce((sum, { cost_usd }) => sum + cost_usd, 0)
    return { from: "2026-02-27", to: "2026-03-02", by: "day", total_usd, rows, budgets: [] }
  }

  it("are stacked by day, the largest part first, with the days that cost nothing", () => {
    const stack = stackCosts(report([row("2026-02-27", { aws: 1 }), row("2026-03-01", { aws: 1, gcp: 5 })]), "by_cloud")
    expect(stack).toEqual({
      keys: ["gcp", "aws"],
      days: [
        { day: "2026-02-27", usd: 1, parts: [0, 1] },
        { day: "2026-02-28", usd: 0, parts: [0, 0] },
        { day: "2026-03-01", usd: 6, parts: [5, 1] },
      ],
      undatedUsd: 0,
    })
    expect(stackCosts(report([row("2026-02-28", { aws: 1, gcp: 2 })]))).toMatchObject({ keys: ["total"] })
  })

  it("add up to the total, whatever the number of parts, with what has no day", () => {
    const usd = fc.integer({ min: 0, max: 1000 })
    const parts = fc.dictionary(fc.constantFrom("a", "b", "c", "d", "e", "f", "g", "other"), usd)
    const rows = fc.uniqueArray(fc.tuple(fc.constantFrom("2026-02-27", "2026-02-28", "2026-03-01", "2026-02"), parts), {
      selector: ([day]) => day,
    })
    fc.assert(
      fc.property(rows, (given) => {
        const whole = report(given.map(([day, by]) => row(day, by)))
        const { keys, days, undatedUsd } = stackCosts(whole, "by_cloud")
        expect(keys.length).toBeLessThanOrEqual(5)
        expect(new Set(keys).size).toBe(keys.length)
        const stacked = days.flatMap((day) => day.parts).reduce((sum, part) => sum + part, 0)
        expect(stacked + undatedUsd).toBeCloseTo(whole.total_usd, 6)
      }),
    )
  })

  it("are kept for 13 months", () => {
    const months = keptMonths(Date.UTC(2026, 0, 31, 23))
    expect([months[0], months[1], months[12], months.length]).toEqual(["2026-01", "2025-12", "2025-01", 13])
  })

  it("have an axis that ends at a round amount", () => {
    expect([0, 0.0031, 0.1, 1, 1.2, 4.9, 61, 100].map(roundedUp)).toEqual([1, 0.005, 0.1, 1, 2, 5, 100, 100])
  })
})
