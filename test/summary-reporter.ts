import { appendFileSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { stripVTControlCharacters } from "node:util"
import type { SerializedError } from "vitest"
import type { Reporter, TestCase, TestModule, Vitest } from "vitest/node"

/** Names of the tests that continuous integration may skip, one `file > test` a line. */
const EXPECTED = join(import.meta.dirname, "expected-skips.txt")

/**
 * Lists at the end of a run which tests were skipped, by reason.
 *
 * Continuous integration sets three variables. With BERTH_STRICT, a skip that test/expected-skips.txt doesn't name fails
 * the run. BERTH_DURATIONS names a file, to which each test file's duration is appended, as `<seconds> <file>`.
 * BERTH_FAILURES names a file, to which each failure is appended, since a long log may be cut.
 */
export default class SummaryReporter implements Reporter {
  readonly #skipped: TestCase[] = []
  #vitest: Vitest | undefined

  onInit(vitest: Vitest): void {
    this.#vitest = vitest
  }

  onTestCaseResult(test: TestCase): void {
    for (const error of test.result().errors ?? []) appendFailure(nameOf(test), error)
    // A filter by name (`-t`) skips all other tests on purpose.
    const isFiltered = this.#vitest?.config.testNamePattern !== undefined
    if (!isFiltered && (test.options.mode === "skip" || test.options.mode === "todo")) this.#skipped.push(test)
  }

  onTestModuleEnd(module: TestModule): void {
    for (const suite of module.children.allSuites()) {
      for (const error of suite.errors()) appendFailure(`${module.relativeModuleId} > ${suite.fullName}`, error)
    }
    for (const error of module.errors()) appendFailure(module.relativeModuleId, error)
    const file = process.env["BERTH_DURATIONS"]
    if (file === undefined) return
    appendFileSync(file, `${(module.diagnostic().duration / 1000).toFixed(1)} ${module.relativeModuleId}\n`)
  }

  onTestRunEnd(_modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    for (const error of unhandledErrors) appendFailure("outside of tests", error)
    for (const [reason, tests] of Map.groupBy(this.#skipped, reasonOf)) {
      const files = [...new Set(tests.map(({ module }) => module.relativeModuleId))]
      console.log(`skipped: ${tests.length} tests, ${reason}: ${files.join(", ")}`)
    }
    if (process.env["BERTH_STRICT"] === undefined) return
    const expected = new Set(readFileSync(EXPECTED, "utf8").split("\n"))
    const unexpected = this.#skipped.map(nameOf).filter((name) => !expected.has(name))
    if (unexpected.length === 0) return
    console.error(`${unexpected.length} skipped tests are not listed in test/expected-skips.txt:`)
    for (const name of unexpected) console.error(`  ${name}`)
    process.exitCode = 1
  }
}

/** Appends a test's name, what failed, and where. */
function appendFailure(name: string, { message, diff, stack }: SerializedError): void {
  const file = process.env["BERTH_FAILURES"]
  if (file === undefined) return
  const frames = (stack ?? "").split("\n").filter((line) => /^\s+at /.test(line) && !line.includes("/node_modules/"))
  const lines = stripVTControlCharacters([message, diff ?? ""].join("\n"))
    .split("\n")
    .slice(0, 30)
  appendFileSync(file, `${[name, ...lines, ...frames].map((line) => line.slice(0, 300)).join("\n    ")}\n`)
}

function nameOf({ module, fullName }: TestCase): string {
  return `${module.relativeModuleId} > ${fullName}`
}

/** Returns the reason that `needing` (test/needing.ts) puts into a name. */
function reasonOf({ fullName }: TestCase): string {
  return /\(skipped: (.*?)\)(?= > |$)/.exec(fullName)?.[1] ?? "no reason given"
}
