import { existsSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Browser, chromium, type Page } from "playwright-core"
import { afterAll, beforeAll } from "vitest"
import { buildConsole } from "../../scripts/console.ts"
import { type Fixture, type Replica, type ReplicaOptions, shippedOffers, startReplica } from "../facade/harness.ts"
import { needing } from "../needing.ts"

const BROWSERS = ["chromium", "chromium-browser", "google-chrome"].map((name) => `/usr/bin/${name}`)
const executablePath = BROWSERS.find((path) => existsSync(path))

/** Chromium's sandbox needs a user other than root. */
const ARGUMENTS = ["--no-sandbox", "--disable-gpu"]

export const browserNeeded = needing(
  executablePath === undefined ? `none of ${BROWSERS.join(", ")} is installed` : undefined,
)

/** A page of the console. `faults` collects errors of its console, policy reports and requests to other hosts. */
export interface Visit {
  page: Page
  faults: string[]
}

/** The console in a real browser, served by a real façade. */
export interface ConsoleSite {
  readonly replica: Replica
  readonly origin: string
  /** Opens a page of the fixture's project, not signed in. */
  open(path: string, options?: Parameters<Browser["newPage"]>[0]): Promise<Visit>
  /** Opens a page and signs in with a key of the fixture. */
  signedIn(path: string, options?: Parameters<Browser["newPage"]>[0]): Promise<Visit>
}

/** Starts façade and browser before a suite, and ends them after it. */
export function consoleSite(fixture: Fixture, options: ReplicaOptions = {}): ConsoleSite {
  let replica: Replica
  let browser: Browser
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-console-"))
    await buildConsole(folder)
    const clouds = ["aws", "gcp", "azure"].map((cloud) => ({ cloud }))
    const market = { offers: shippedOffers(), launchAccounts: { of: () => clouds } }
    replica = await startReplica({ market, ...options, consoleFolder: folder })
    browser = await chromium.launch({ executablePath: executablePath ?? "", args: ARGUMENTS })
  })
  afterAll(async () => {
    await browser?.close()
    await replica?.close()
    await rm(folder, { recursive: true, force: true })
  })
  const open: ConsoleSite["open"] = async (path, pageOptions = {}) => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, locale: "en-GB", ...pageOptions })
    const faults: string[] = []
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) faults.push(message.text())
    })
    page.on("pageerror", (error) => faults.push(error.message))
    page.on("request", (request) => {
      const url = request.url()
      if (!url.startsWith(`${site.origin}/`) && !/^(data|blob):/.test(url)) faults.push(url)
    })
    await page.goto(`${site.origin}/console/projects/${fixture.project}${path}`)
    return { page, faults }
  }
  const site: ConsoleSite = {
    get replica() {
      return replica
    },
    get origin() {
      return `http://127.0.0.1:${replica.port}`
    },
    open,
    signedIn: async (path, pageOptions) => {
      const visit = await open(path, pageOptions)
      await visit.page.getByLabel("API key", { exact: true }).fill(fixture.keys.admin)
      await visit.page.getByRole("button", { name: "Sign in" }).click()
      await visit.page.getByText("Live", { exact: true }).waitFor()
      return visit
    },
  }
  return site
}
