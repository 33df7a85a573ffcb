import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { afterAll, beforeAll } from "vitest"
import { buildConsole } from "../../scripts/console.ts"
import { collectFaults, launchBrowser } from "../browser.ts"
import { type Replica, type ReplicaOptions, shippedOffers, startReplica } from "../harness/facade.ts"
import type { ProjectFixture } from "../harness/facade-project.ts"

/** A page of the console. `faults` collects errors of its console, policy reports and requests to other hosts. */
export interface Visit {
  page: Page
  faults: string[]
}

/** Network between browser and façade, which a test can cut. */
class Network {
  readonly #target: () => number
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #isCut = false

  constructor(target: () => number) {
    this.#target = target
    this.#server = createServer((socket) => this.#pass(socket))
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async listen(): Promise<void> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening")
  }

  #pass(socket: Socket): void {
    socket.on("error", () => undefined)
    if (this.#isCut) {
      socket.destroy()
      return
    }
    const onward = connect(this.#target(), "127.0.0.1").on("error", () => socket.destroy())
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      this.#sockets.add(one)
      one.pipe(other)
      one.once("close", () => {
        this.#sockets.delete(one)
        other.destroy()
      })
    }
  }

  /** Ends all connections, and accepts no other until `restore`. */
  cut(): void {
    this.#isCut = true
    for (const socket of this.#sockets) socket.destroy()
  }

  restore(): void {
    this.#isCut = false
  }

  close(): void {
    this.cut()
    this.#server.close()
  }
}

/** The console in a real browser, served by a real façade. */
export interface ConsoleSite {
  readonly replica: Replica
  readonly network: Pick<Network, "cut" | "restore">
  readonly origin: string
  /** Opens a page of the project, not signed in. */
  open(path: string, options?: VisitOptions): Promise<Visit>
  /** Opens a page and signs in with the project's key of an admin. */
  signedIn(path: string, options?: VisitOptions): Promise<Visit>
  /** Opens a page and signs in at the issuer of the replica's settings, as the person with this name there. */
  signedInAs(person: string, path: string, options?: VisitOptions): Promise<Visit>
}

type VisitOptions = Parameters<Browser["newPage"]>[0] & {
  /** Project with its keys; default: that of the site. */
  of?: ProjectFixture
  /** Origin of a proxy in front of the site; default: the site's own. */
  origin?: string
}

/** Starts façade and browser before a suite, and ends them after it. @param optionsOf is called before the start */
export function consoleSite(fixture: ProjectFixture, optionsOf: () => ReplicaOptions = () => ({})): ConsoleSite {
  let issuer: string | undefined
  let replica: Replica
  let browser: Browser
  let folder: string
  const network = new Network(() => replica.port)
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-console-"))
    await buildConsole(folder)
    const clouds = ["aws", "gcp", "azure"].map((cloud) => ({ cloud }))
    const options = optionsOf()
    issuer = options.settings?.signIn?.issuer
    const market = { offers: shippedOffers(), launchAccounts: { of: () => clouds } }
    replica = await startReplica({ market, ...options, consoleFolder: folder })
    await network.listen()
    browser = await launchBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    network.close()
    await replica?.close()
    await rm(folder, { recursive: true, force: true })
  })
  const open: ConsoleSite["open"] = async (path, { of = fixture, origin = site.origin, ...pageOptions } = {}) => {
    // In a context of its own, in which a test can open more tabs.
    const context = await browser.newContext({
      viewport: { width: 1280, height: 900 },
      locale: "en-GB",
      // A state that moves makes the browser draw sixty times a second, for as long as the page is open.
      reducedMotion: "reduce",
      ...pageOptions,
    })
    const page = await context.newPage()
    const hosts = [origin, ...(issuer === undefined ? [] : [issuer])].map((host) => `${host}/`)
    const faults = collectFaults(page, [...hosts, "data:", "blob:"], issuer)
    await page.goto(`${origin}/console/projects/${of.project}${path}`)
    return { page, faults }
  }
  const site: ConsoleSite = {
    network,
    get replica() {
      return replica
    },
    get origin() {
      return `http://127.0.0.1:${network.port}`
    },
    open,
    signedIn: async (path, pageOptions) => {
      const { keys } = pageOptions?.of ?? fixture
      const visit = await open(path, pageOptions)
      await visit.page.getByLabel("API key", { exact: true }).fill(keys.admin)
      await visit.page.getByRole("form").getByRole("button", { name: "Sign in" }).click()
      await visit.page.getByText("Live", { exact: true }).waitFor()
      return visit
    },
    signedInAs: async (person, path, pageOptions) => {
      const visit = await open(path, pageOptions)
      await visit.page.getByRole("region", { name: "Sign in as a person" }).getByRole("button").click()
      await visit.page.getByLabel("Name").fill(person)
      await visit.page.getByRole("button", { name: "Sign in" }).click()
      await visit.page.getByText("Live", { exact: true }).waitFor()
      return visit
    },
  }
  return site
}

/** Shows another page of the console, so that the sign-in stays. */
export async function goTo(page: Page, { project }: Pick<ProjectFixture, "project">, path: string): Promise<void> {
  const address = JSON.stringify(`/console/projects/${project}${path}`)
  await page.evaluate(`history.pushState(null, "", ${address}); dispatchEvent(new PopStateEvent("popstate"))`)
}

/** Presses Tab until an element has the focus. */
export async function tabTo(page: Page, selector: string): Promise<void> {
  for (let presses = 0; presses < 60; presses++) {
    if (await page.evaluate(`document.activeElement?.matches(${JSON.stringify(selector)})`)) return
    await page.keyboard.press("Tab")
  }
  throw new Error(`Tab does not reach ${selector}`)
}
