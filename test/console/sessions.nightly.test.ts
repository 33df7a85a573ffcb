import { createHash, randomBytes } from "node:crypto"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { afterAll, beforeAll, expect } from "vitest"
import { WebSocketServer } from "ws"
import { buildConsole } from "../../scripts/console.ts"
import { browserMissing, collectFaults, launchBrowser } from "../browser.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { makeKey } from "../harness/api-keys.ts"
import { Balancer } from "../harness/balancer.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { GATE_WAIT, Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"
import { CONTRAST, violationsOn } from "./look.ts"

const runtime = await containerRuntime()
const needed = needing(runtime.name === "docker" ? browserMissing : "no Docker engine answers")

/** Domain of ports. Browsers find each name below localhost on this machine. */
const DOMAIN = "ports.localhost"

/** Shell command that prints the address of this machine for a container. */
const GATEWAY = "busybox ip route | busybox awk '/default/ { print $3 }'"

/** Page of the program: what it may do, and what it can't reach. */
const PAGE = `<!doctype html><title>Notebook</title><ul></ul><script type="module">
  const show = (text) => {
    document.querySelector("ul").innerHTML += "<li>" + text
  }
  show("at " + location.pathname + ", cookies: " + document.cookie + ", opener: " + window.opener)
  new EventSource("/events").onmessage = ({ data }) => show("event " + data)
  const socket = new WebSocket("/socket")
  socket.onopen = () => socket.send("hello")
  socket.onmessage = ({ data }) => show("echo " + data)
  const api = new URLSearchParams(location.search).get("api")
  fetch(api, { credentials: "include" }).then(() => show("read the API"), () => show("can't read the API"))
  fetch("/1/jobs").then(async (answer) => show("own " + (await answer.text())))
</script>`

/** Command that says how many bytes it reads, and their hash. */
const SUM = `sh -c 'stty raw -echo; echo ready; busybox head -c 1048576 | busybox sha256sum; stty sane; exit 3'`

needed.describe("the sessions of a job's page", () => {
  let berth: Installation
  let browser: Browser
  let folder: string
  /** Program behind the port 8080 of the container, which passes its connections on. */
  let program: Server

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-terminal-"))
    await buildConsole(folder)
    const own = { sessions: true, sessionDomain: DOMAIN, consoleFolder: folder }
    berth = await Installation.create({ name: "console", kubeconfig: kubeconfigPath(), runtime, ...own })
    program = await startProgram()
    await berth.startOperator()
    browser = await launchBrowser()
    const { port } = program.address() as AddressInfo
    await berth.submit("job", `nc -ll -p 8080 -e nc $(${GATEWAY}) ${port} &\n${GATE_WAIT}`)
    await berth.reached("running", "job")
  })
  afterAll(async () => {
    await browser?.close()
    await berth?.close()
    program?.closeAllConnections()
    program?.close()
    await rm(folder, { recursive: true, force: true })
  })

  async function startProgram(): Promise<Server> {
    const server = createServer((req, res) => {
      if (req.url === "/")
        return res.writeHead(302, { Location: `/lab?api=${berth.url}/1/jobs`, "Set-Cookie": "own=1" }).end()
      if (req.url?.startsWith("/lab")) return res.writeHead(200, { "Content-Type": "text/html" }).end(PAGE)
      if (req.url === "/events")
        return res.writeHead(200, { "Content-Type": "text/event-stream" }).write(`data: of ${req.headers.host}\n\n`)
      return res.end(`${req.url} with ${req.headers.cookie}`)
    })
    new WebSocketServer({ server }).on("connection", (socket) => socket.on("message", (data) => socket.send(`${data}`)))
    await once(server.listen(0), "listening")
    return server
  }

  /** Opens a page of the console at a replica, signed in with a key. */
  async function signedIn(path: string, { key = berth.apiKey, origin = berth.url } = {}) {
    const page = await browser.newPage({
      viewport: { width: 1280, height: 900 },
      locale: "en-GB",
      colorScheme: "light",
    })
    const faults = collectFaults(page, [`${origin}/`, "data:", "blob:"])
    await page.goto(`${origin}/console/projects/${berth.namespace}${path}`)
    await page.getByLabel("API key", { exact: true }).fill(key)
    await page.getByRole("form").getByRole("button", { name: "Sign in" }).click()
    await page.getByText("Live", { exact: true }).waitFor()
    return { page, faults }
  }

  async function openTerminal(page: Page, command = "sh"): Promise<void> {
    await page.getByLabel("Command", { exact: true }).fill(command)
    await page.getByRole("button", { name: "Open the terminal" }).click()
    await page.getByText("Connected.").waitFor()
  }

  const shows = (page: Page, text: string | RegExp) => page.locator(".xterm-rows").getByText(text).first().waitFor()
  const sizeShown = async (page: Page): Promise<string> => {
    await page.keyboard.type("busybox clear; echo size=$(stty size)\n")
    await shows(page, /size=\d/)
    return /size=(\d+ \d+)/.exec(await page.locator(".xterm-rows").innerText())?.[1] ?? ""
  }
  const paste = (page: Page, text: string) =>
    page.evaluate(`{
      const clipboardData = new DataTransfer()
      clipboardData.setData("text/plain", ${JSON.stringify(text)})
      const event = new ClipboardEvent("paste", { clipboardData, bubbles: true })
      document.querySelector(".xterm-helper-textarea").dispatchEvent(event)
    }`)

  needed.it("are a terminal that runs what is typed, in the size of its place, until the command ends", async () => {
    const { page, faults } = await signedIn("/jobs/job?tab=sessions")
    await openTerminal(page)
    await page.keyboard.type("printf '\\033[38;2;200;0;80mcolored\\033[0m\\n'\n")
    await shows(page, /^colored/)
    const wide = await sizeShown(page)
    await page.setViewportSize({ width: 700, height: 900 })
    await expect.poll(() => sizeShown(page)).not.toBe(wide)
    expect(await violationsOn(page)).toEqual([])
    await page.emulateMedia({ colorScheme: "dark" })
    expect(await violationsOn(page, CONTRAST)).toEqual([])
    // The keyboard gets out of the terminal, and a look at the log does not end it.
    await page.keyboard.press("Tab")
    expect(await page.evaluate("document.activeElement.className")).toContain("xterm")
    await page.keyboard.press("Control+Shift+Enter")
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Close the terminal")
    await page.getByRole("link", { name: "Log", exact: true }).click()
    await page.getByRole("link", { name: "Terminal and ports" }).click()
    await page.locator(".xterm-helper-textarea").focus()
    await page.keyboard.type("\u0003exit 5\n")
    await page.getByText("The command has ended with exit code 5.").waitFor()
    await page.getByRole("button", { name: "Open again" }).click()
    await page.getByText("Connected.").waitFor()
    await page.getByRole("button", { name: "Close the terminal" }).click()
    await page.getByRole("heading", { name: "Open sessions" }).waitFor({ state: "detached" })
    expect(faults).toEqual([])
    await page.close()
  })

  needed.it("take a paste of 1 MiB whole", async () => {
    const { page, faults } = await signedIn("/jobs/job?tab=sessions")
    await openTerminal(page, SUM)
    await shows(page, "ready")
    const text = randomBytes(512 * 1024).toString("hex")
    await paste(page, text)
    await shows(page, createHash("sha256").update(text).digest("hex"))
    await page.getByText("The command has ended with exit code 3.").waitFor()
    expect(faults).toEqual([])
    await page.close()
  })

  needed.it("say why one has ended, or can't be opened", async () => {
    const replica = await berth.startReplica()
    const { page } = await signedIn("/jobs/job?tab=sessions", { origin: replica.url })
    await page.getByLabel("Command", { exact: true }).fill("nano")
    await page.getByRole("button", { name: "Open the terminal" }).click()
    await page
      .getByText(/the container has no program nano.*Without a shell in the image, use: berth debug job/)
      .waitFor()
    await page.getByRole("button", { name: "Close the terminal" }).click()
    await openTerminal(page)
    await page.getByRole("button", { name: /^End the session exec of / }).click()
    await page.getByText("The session has ended: the session was ended by request.").waitFor()
    await page.getByRole("button", { name: "Open again" }).click()
    await page.getByText("Connected.").waitFor()
    await replica.program.kill()
    await page.getByText("The session has ended: the connection broke off").waitFor()
    expect(await page.getByRole("button", { name: "Open again" }).isVisible()).toBe(true)
    await page.close()
  })

  needed.it("are listed when there are four, and one of them can be ended", async () => {
    const init = { method: "POST", headers: { "Content-Type": "application/json" }, body: `{"command":["cat"]}` }
    for (let count = 0; count < 4; count++) await berth.fetch("/jobs/job/sessions", init)
    const { page, faults } = await signedIn("/jobs/job?tab=sessions")
    await page.getByText("4 of 4 sessions are open. End one of them to open another.").waitFor()
    expect(await page.getByRole("button", { name: "Open the terminal" }).count()).toBe(0)
    await page
      .getByRole("button", { name: /^End the session exec/ })
      .first()
      .click()
    await page.getByRole("button", { name: "Open the terminal" }).waitFor()
    expect(faults).toEqual([])
    await page.close()
  })

  needed.it("open a port in a tab of its own origin, through any replica, until they end", async () => {
    const replica = await berth.startReplica()
    await using balancer = await Balancer.start([berth.url])
    const { page, faults } = await signedIn("/jobs/job?tab=sessions", { origin: balancer.url })
    await page.getByLabel("Port", { exact: true }).fill("8080")
    const opening = page.context().waitForEvent("page")
    await page.getByRole("button", { name: "Open port" }).click()
    const tab = await opening
    const shown = (text: string) => tab.getByText(text, { exact: true }).waitFor()
    await shown("at /lab, cookies: own=1, opener: null")
    await shown("event of localhost:8080")
    await shown("echo hello")
    await shown("can't read the API")
    await shown("own /1/jobs with own=1")
    expect(new URL(tab.url()).hostname).toMatch(/^[0-9a-f]{32}\.ports\.localhost$/)
    // The other replica does not hold the session.
    balancer.targets = [replica.url]
    await tab.reload()
    await shown("event of localhost:8080")
    await shown("echo hello")
    await page.getByRole("button", { name: /^End the session port 8080/ }).click()
    await expect.poll(async () => (await tab.reload())?.status()).toBe(404)
    await shown("No session is open at this address")
    expect(faults).toEqual([])
    await replica.program.kill()
    await page.close()
  })

  needed.it("say what an operator sets where they are off", async () => {
    const replica = await berth.startReplica(0, { sessions: false })
    const { page } = await signedIn("/jobs/job?tab=sessions", { origin: replica.url })
    await page.getByText("Sessions are off.").waitFor()
    expect(await page.getByRole("main").innerText()).toContain("facade.sessions.enabled (--sessions true)")
    await replica.program.kill()
    await page.close()
  })

  needed.it("open a copy of a failed container, whose machine the page can end", async () => {
    await berth.submit("fails", "echo evidence > /tmp/found; exit 3", { debug: { keepSeconds: 3600 } })
    await berth.reached("failed", "fails")
    const { page, faults } = await signedIn("/jobs/fails?tab=sessions")
    const summary = page.getByRole("region", { name: "Summary" })
    await summary.getByText("Machine kept until").waitFor()
    await summary.getByText(/its VM is kept until .* and costs up to/).waitFor()
    expect(await page.getByText("With Berth's tools").count()).toBe(0)
    await openTerminal(page, "cat /tmp/found")
    await shows(page, "evidence")
    await page.getByText("The command has ended with exit code 0.").waitFor()
    await page.getByRole("button", { name: "End", exact: true }).first().click()
    await page.getByRole("button", { name: "End the machine" }).click()
    await summary.getByText("Machine kept until").waitFor({ state: "detached" })
    await berth.untilJobs("fails settled", () => berth.job("fails").status?.settled === true)
    expect(faults).toEqual([])
    await page.close()
  })

  needed.it("are for developers only", async () => {
    const viewer = await makeKey(berth.client, berth.namespace, "viewer", { name: "viewer" })
    const { page, faults } = await signedIn("/jobs/job?tab=sessions", { key: viewer })
    await page.getByRole("link", { name: "Specification" }).waitFor()
    expect(await page.getByRole("link", { name: "Terminal" }).count()).toBe(0)
    expect(await page.getByRole("region", { name: "Terminal" }).count()).toBe(0)
    expect(faults).toEqual([])
    await page.close()
  })
})
