import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["src/**/*.test.ts", "test/**/*.test.ts"],
    globalSetup: ["test/control-plane.setup.ts"],
    pool: "forks",
    // Most suites wait for servers and processes most of the time; vitest's own choice on 2 cores is one at a time.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    // Far beyond what any takes: a test is about what happens, not how soon, and machines are slow at times.
    testTimeout: 180_000,
    hookTimeout: 300_000,
    teardownTimeout: 30_000,
    // One of thousands of tests that a busy machine upset shall not stop a release; the reporter tells of it loudly.
    retry: process.env["CI"] ? 1 : 0,
    reporters: ["default", "./test/flaky-reporter.ts", ...(process.env["GITHUB_ACTIONS"] ? ["github-actions"] : [])],
    // Only so that none waits for ever.
    expect: { requireAssertions: true, poll: { timeout: 60_000 } },
    restoreMocks: true,
  },
})
