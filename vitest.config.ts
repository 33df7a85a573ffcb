import { availableParallelism, tmpdir } from "node:os"
import { join } from "node:path"
import { defineConfig, type ViteUserConfig } from "vitest/config"

type Options = NonNullable<ViteUserConfig["test"]>

const SLOW = "test/**/*.slow.test.ts"
const NIGHTLY = "test/**/*.nightly.test.ts"
const FAULTS = "test/**/*.faults.test.ts"
const globalSetup = ["test/tools.setup.ts", "test/control-plane.setup.ts"]
/** That of the tiers in which many agents start. */
const withAgents = [...globalSetup, "test/agent-program.setup.ts"]

/** Of `test/`, the suites that talk to no server and start no process. */
const PURE = [
  "test/prose.test.ts",
  "test/cloud-names.test.ts",
  "test/agent/usage-delivery.test.ts",
  "test/imports.test.ts",
  "test/tools.test.ts",
  "test/release/attest.test.ts",
  "test/release/version.test.ts",
  "test/router/*.test.ts",
  "test/money/strict-caps.test.ts",
  "test/money/full-cpu-bills.test.ts",
  "test/console/parts.test.ts",
  "test/cloud/requests.test.ts",
  "test/cloud/unchanged-requests.test.ts",
  "test/discovery/discoverer.test.ts",
  "test/faults/clocks.test.ts",
  "test/faults/tally.test.ts",
  "test/providers/registry-logins.test.ts",
]

/** Suites of other tiers that have a longer form, too. */
const LONGER = [
  "src/market/placement/line-simulation.test.ts",
  "test/agent/flood.test.ts",
  "test/attacks/webhooks.test.ts",
  "test/agent/cloud-init.slow.test.ts",
  "test/console/sign-in.slow.test.ts",
  "test/controllers/crash.slow.test.ts",
  "test/faults/crash.slow.test.ts",
  "test/install/install.slow.test.ts",
  "test/money/strict-caps.test.ts",
  "test/money/full-cpu-bills.test.ts",
  "test/router/advice.test.ts",
  "test/router/oracle.test.ts",
]

/** The tiers; CONTRIBUTING.md says which npm script runs which. */
const tiers: readonly Options[] = [
  // A file shares its process with others, since it changes nothing but its own objects: half of the time goes.
  { name: "unit", include: ["{src,dev}/**/*.test.ts", ...PURE], isolate: false },
  {
    name: "api",
    include: ["test/**/*.test.ts"],
    exclude: [...PURE, SLOW, NIGHTLY, FAULTS],
    globalSetup,
    isolate: false,
  },
  { name: "slow", include: [SLOW], globalSetup: withAgents, isolate: false },
  // In the suites that have a longer form, BERTH_NIGHTLY selects it.
  { name: "nightly", include: [NIGHTLY, ...LONGER], env: { BERTH_NIGHTLY: "1" }, globalSetup: withAgents },
  { name: "faults", include: ["test/faults/*.test.ts"], globalSetup },
]

/** `npm start` writes a context of `berth`: not into that of the person who runs the tests. */
const ENVIRONMENT = { XDG_CONFIG_HOME: join(tmpdir(), "berth-tests-config") }

const common: Options = {
  pool: "forks",
  // Node.js runs TypeScript as it is: without vite between, a worker is ready in half the time.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  // Most suites wait for servers and processes most of the time: with a worker for each core, cores would be idle. With
  // one more of them, 15 % of two cores were.
  maxWorkers: availableParallelism() + 2,
  // Far beyond what any takes: a test is about what happens, not how soon, and machines are slow at times.
  testTimeout: 180_000,
  hookTimeout: 300_000,
  // Only so that none waits for ever.
  expect: { requireAssertions: true, poll: { timeout: 60_000 } },
  restoreMocks: true,
  setupFiles: process.env["BERTH_WORKERS"] === undefined ? [] : ["test/workers.setup.ts"],
}

export default defineConfig({
  test: {
    projects: tiers.map((tier) => ({ test: { ...common, ...tier, env: { ...ENVIRONMENT, ...tier.env } } })),
    teardownTimeout: 30_000,
    reporters: [
      "default",
      "./test/summary-reporter.ts",
      ...(process.env["GITHUB_ACTIONS"] === undefined ? [] : ["github-actions"]),
    ],
  },
})
