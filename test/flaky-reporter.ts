import type { Reporter, TestCase } from "vitest/node"

/**
 * Tells at the end of a run which tests passed only at a second try, and what the first one failed with: such a test
 * doesn't stop the run, and is a defect all the same.
 */
export default class FlakyReporter implements Reporter {
  readonly #flaky: TestCase[] = []

  onTestCaseResult(test: TestCase): void {
    if (test.diagnostic()?.flaky) this.#flaky.push(test)
  }

  onTestRunEnd(): void {
    for (const test of this.#flaky) {
      console.error(`FLAKY: ${test.module.relativeModuleId} > ${test.fullName} passed only at its second try`)
      for (const { stack, message } of test.result().errors ?? []) console.error(stack ?? message)
    }
    if (this.#flaky.length > 0) console.error(`FLAKY: ${this.#flaky.length} tests in all; see CONTRIBUTING.md`)
  }
}
