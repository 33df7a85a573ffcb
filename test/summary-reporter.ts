import { appendFileSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { Reporter, TestCase, TestModule, Vitest } from "vitest/node"

/** Names of the tests that continuous integration may skip, one `file > test` a line. */
const EXPECTED = join(import.meta.dirname, "expected-skips.txt")

/**
 * Lists at the end of a run which tests were skipped, by reason.
 *
 * Continuous integration sets two variables. With BERTH_STRICT, a skip that test/expected-skips.txt doesn't name fails
 * the run. BERTH_DURATIONS names a file, to which each test file's duration is appended, as `<seconds> <file>`.
 */
export default class SummaryReporter implements Reporter {
  readonly #skipped: TestCase[] = []
  #vitest: Vitest | undefined

  onInit(vitest: Vitest): void {
    this.#vitest = vitest
  }

  onTestCaseResult(test: TestCase): void {
    // A filter by name (`-t`) skips all other tests on purpose.
    const isFiltered = this.#vitest?.config.testNamePattern !== undefined
    if (!isFiltered && (test.options.mode === "skip" || test.options.mode === "todo")) this.#skipped.push(test)
  }

  onTestModuleEnd(module: TestModule): void {
    const file = process.env["BERTH_DURATIONS"]
    if (file === undefined) return
    appendFileSync(file, `${(module.diagnostic().duration / 1000).toFixed(1)} ${module.relativeModuleId}\n`)
  }

  onTestRunEnd(): void {
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

function nameOf({ module, fullName }: TestCase): string {
  return `${module.relativeModuleId} > ${fullName}`
}

/** Returns the reason that `needing` (test/needing.ts) puts into a name. */
function reasonOf({ fullName }: TestCase): string {
  return /\(skipped: (.*?)\)(?= > |$)/.exec(fullName)?.[1] ?? "no reason given"
}
