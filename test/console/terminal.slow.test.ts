import { createHash, randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { afterAll, beforeAll, expect } from "vitest"
import { buildConsole } from "../../scripts/console.ts"
import { browserMissing, collectFaults, launchBrowser } from "../browser.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { makeKey } from "../harness/api-keys.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { GATE_WAIT, Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"
import { CONTRAST, violationsOn } from "./look.ts"

const runtime = await containerRuntime()
const needed = needing(runtime.name === "docker" ? browserMissing : "no Docker engine answers")

/** Command that says how many bytes it reads, and their hash. */
const SUM = `sh -c 'stty raw -echo; echo ready; busybox head -c 1048576 | busybox sha256sum; stty sane; exit 3'`

needed.describe("the terminal of a job's page", () => {
  let berth: Installation
  let browser: Browser
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-terminal-"))
    await buildConsole(folder)
    const options = { name: "terminal", kubeconfig: kubeconfigPath(), runtime, sessions: true, consoleFolder: folder }
    berth = await Installation.create(options)
    await berth.startOperator()
    browser = await launchBrowser()
    await berth.submit("job", GATE_WAIT)
    await berth.reached("running", "job")
  })
  afterAll(async () => {
    await browser?.close()
    await berth?.close()
    await rm(folder, { recursive: true, force: true })
  })

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

  needed.it("runs what is typed, in the size of its place, until the command ends", async () => {
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

  needed.it("takes a paste of 1 MiB whole", async () => {
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

  needed.it("says why a session has ended, or can't be opened", async () => {
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

  needed.it("lists the sessions of others when there are four, and lets one of them be ended", async () => {
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

  needed.it("is for developers only", async () => {
    const viewer = await makeKey(berth.client, berth.namespace, "viewer", { name: "viewer" })
    const { page, faults } = await signedIn("/jobs/job?tab=sessions", { key: viewer })
    await page.getByRole("link", { name: "Specification" }).waitFor()
    expect(await page.getByRole("link", { name: "Terminal" }).count()).toBe(0)
    expect(await page.getByRole("region", { name: "Terminal" }).count()).toBe(0)
    expect(faults).toEqual([])
    await page.close()
  })
})
