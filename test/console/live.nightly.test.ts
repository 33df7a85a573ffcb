import type { CDPSession, Page } from "playwright-core"
import { beforeAll, expect } from "vitest"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { JOBS } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { caller, created } from "../harness/caller.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { consoleSite, goTo, type Visit } from "./browser.ts"

/** Length of the run, minutes. */
const MINUTES = Number(process.env["BERTH_CONSOLE_MINUTES"] ?? 30)

const JOB_COUNT = 200
/** Jobs that change before a page is looked at. */
const CHANGES = 10
/**
 * Rounds between two measurements, a multiple of the pages of a walk. A round takes as long as a page waits between two
 * reads: 1.5 seconds.
 */
const ROUNDS = 24

/** Pages that stay open, and one reader who walks through all of them. */
const PAGES = ["/jobs?name=live-0", "/jobs", "", "/jobs/live-0?tab=story"]
const WALK = [
  ...["", "/jobs", "/jobs/live-1?tab=spec", "/cronjobs", "/offers?gpu=L4", "/connections", "/keys", "/new"],
  ...["/arrays", "/arrays/live", "/webhooks", "/costs"],
]

/** Most growth between the first and the last third of the run. */
const GROWTH = { heapKib: 512, nodes: 100, listeners: 20 }

type Size = Record<keyof typeof GROWTH, number>

/** Pages that follow the changes of a project for a long time. */
browserNeeded.describe("the console that stays open", () => {
  const fixture = projectFixture("console-live")
  const site = consoleSite(fixture)

  beforeAll(async () => {
    const kind = { apiVersion: API_VERSION, kind: "Job", spec: { image: "alpine" } } as const
    const tasks = Array.from({ length: JOB_COUNT }, (_, index) => () => {
      const metadata = { name: `live-${index}`, namespace: fixture.namespace }
      return fixture.client.create(JOBS, { ...kind, metadata } as StoredJob)
    })
    await inParallel(tasks, 16, (task) => task())
    const call = caller(() => site.replica, fixture)
    await created(await call("/1/arrays", { body: { name: "live", job_definition: { image: "alpine" }, size: 500 } }))
    const hook = { name: "live", url: "https://ci.example.com", events: ["job.*"] }
    await created(await call("/1/webhooks", { body: hook }))
  })

  /** Changes some jobs, the first one to a phase that the list then shows. */
  async function change(round: number): Promise<string> {
    const phase = round % 2 === 0 ? "running" : "booting"
    const startTime = new Date().toISOString().replace(/[.]\d+/, "")
    for (let index = 1; index < CHANGES; index++) {
      const name = `live-${(round * CHANGES + index) % JOB_COUNT}`
      await setStatus(fixture, name, { phase: "queued", reason: "QuotaExceeded", message: `round ${round}` })
    }
    await setStatus(fixture, "live-0", { phase, ...(phase === "running" && { startTime }) })
    return phase
  }

  browserNeeded.it(
    `does not grow in ${MINUTES} minutes of changes`,
    async () => {
      const visits: Visit[] = []
      for (const path of [...PAGES, ""]) visits.push(await site.signedIn(path))
      const pages = visits.map(({ page }) => page)
      const [list, walker] = [pages[0], pages.at(-1)] as [Page, Page]
      const sessions = await Promise.all(pages.map((page) => page.context().newCDPSession(page)))
      const sizes: Size[][] = []
      const end = Date.now() + MINUTES * 60_000
      let round = 0
      while (Date.now() < end || sizes.length < 4) {
        const phase = await change(round)
        await list.locator(`tbody .status.${phase}`).waitFor()
        await goTo(walker, fixture, WALK[round % WALK.length] ?? "")
        await walker.locator("main h1").waitFor()
        if (++round % ROUNDS === 0) sizes.push(await Promise.all(sessions.map(sizeOf)))
      }
      console.log(`${round * CHANGES} changes in ${MINUTES} minutes, ${sizes.length} measurements`)
      const growths = [...PAGES, "a walk"].map((page, index) =>
        reported(
          page,
          sizes.map((all) => all[index] as Size),
        ),
      )
      expect(growths.filter(isTooMuch)).toEqual([])
      // Requests may fail in a run of many minutes. The console retries them.
      const faults = visits.flatMap((visit) => visit.faults)
      expect(faults.filter((fault) => !fault.startsWith("Failed to load resource"))).toEqual([])
    },
    MINUTES * 120_000 + 600_000,
  )
})

/** Returns the size of a page after a garbage collection. */
async function sizeOf(session: CDPSession): Promise<Size> {
  await session.send("HeapProfiler.enable")
  await session.send("HeapProfiler.collectGarbage")
  const { usedSize } = await session.send("Runtime.getHeapUsage")
  const { nodes, jsEventListeners: listeners } = await session.send("Memory.getDOMCounters")
  return { heapKib: Math.round(usedSize / 1024), nodes, listeners }
}

/** Returns the growth of a page, and prints it. */
function reported(page: string, sizes: readonly Size[]): Size & { page: string } {
  // The engine still compiles code before the first measurement.
  const growth = growthOf(sizes.slice(1))
  const heaps = sizes.map(({ heapKib }) => heapKib).join(" ")
  console.log(`${page}: growth ${JSON.stringify(growth)}; KiB after each collection: ${heaps}`)
  return { page, ...growth }
}

function isTooMuch({ heapKib, nodes, listeners }: Size): boolean {
  return heapKib >= GROWTH.heapKib || nodes >= GROWTH.nodes || listeners >= GROWTH.listeners
}

/** Returns the differences between the medians of the last and of the first third. */
function growthOf(sizes: readonly Size[]): Size {
  const third = Math.max(1, Math.floor(sizes.length / 3))
  const growth = (name: keyof Size): number =>
    median(sizes.slice(-third).map((size) => size[name])) - median(sizes.slice(0, third).map((size) => size[name]))
  return { heapKib: growth("heapKib"), nodes: growth("nodes"), listeners: growth("listeners") }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0
}
