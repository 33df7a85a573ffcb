import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Browser, Page } from "playwright-core"
import { afterAll, afterEach, beforeAll, expect } from "vitest"
import { CLIENT_ID, type DevelopmentIssuer, startIssuer } from "../../dev/issuer.ts"
import { buildConsole } from "../../scripts/console.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CodeExchange } from "../../src/core/identity/code-exchange.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { PROJECTS } from "../../src/core/resources.ts"
import { browserNeeded, launchBrowser } from "../browser.ts"
import { type Replica, type ReplicaOptions, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { isNightly } from "../nightly.ts"

const CLIENT = { clientId: "berth-console", secret: "the-secret-of-the-console-1f0c" }
const SCOPES = "openid email"

/** Ways in which a code becomes a token. */
const WAYS = ["in the browser", "by the façade, at an issuer without CORS and with a client secret"] as const

browserNeeded.describe.each(WAYS)("a person who signs in to the console %s", (way) => {
  const fixture = projectFixture("console-people")
  const isByFacade = way !== WAYS[0]
  let folder: string
  let issuer: DevelopmentIssuer
  let replica: Replica
  let browser: Browser

  /** Starts a façade whose console has its own client, or the one of command lines. */
  async function start(audience: string): Promise<Replica> {
    const consoleFolder = join(folder, "console")
    const { clientId } = CLIENT
    const signIn = { issuer: issuer.issuer, audience: issuer.audience, clientId: CLIENT_ID }
    const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.issuer, audience }], clock: systemClock })
    if (!isByFacade) return startReplica({ consoleFolder, tokens, settings: { signIn } })
    const options: ReplicaOptions = { consoleFolder, tokens }
    const secretFile = join(folder, "client-secret")
    options.codeExchange = new CodeExchange({ issuer: issuer.issuer, clientId, secretFile, clock: systemClock })
    const console = { clientId, audience: clientId, scopes: SCOPES }
    return startReplica({ ...options, settings: { signIn: { ...signIn, console } } })
  }

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-console-people-"))
    await buildConsole(join(folder, "console"))
    await writeFile(join(folder, "client-secret"), CLIENT.secret)
    const confidential = { consoleClient: CLIENT, hasCors: false }
    // Claims of Entra ID for a person in more than 200 groups.
    const sources = { _claim_sources: { src1: { endpoint: "https://graph.example" } } }
    const groupClaimsOf = (name: string) => (name === "gina" ? { _claim_names: { groups: "src1" }, ...sources } : {})
    issuer = await startIssuer({ port: 0, dataDir: folder, groupClaimsOf, ...(isByFacade && confidential) })
    replica = await start(isByFacade ? CLIENT.clientId : issuer.audience)
    const ignoreDefaultArgs = ["--disable-back-forward-cache"]
    browser = await launchBrowser({ ignoreDefaultArgs })
    const members = [{ userId: `${issuer.issuer}#ada`, role: "developer" }]
    await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { members } } })
  })
  afterEach(async () => {
    for (const context of browser.contexts()) await context.close()
  })
  afterAll(async () => {
    await browser?.close()
    await replica?.close()
    await issuer?.close()
    await rm(folder, { recursive: true, force: true })
  })

  /** A page of the console. `faults` has policy reports, `calls` the issuer's addresses that scripts asked. */
  async function open(path: string, at = replica) {
    const page = await (await browser.newContext()).newPage()
    const faults: string[] = []
    const calls: string[] = []
    const visits: string[] = []
    page.on("console", (message) => {
      if (/Content Security Policy|TrustedScript/.test(message.text())) faults.push(message.text())
    })
    page.on("request", (request) => {
      if (!request.url().startsWith(issuer.issuer)) return
      if (request.isNavigationRequest()) visits.push(request.url())
      else calls.push(request.url())
    })
    const address = `http://127.0.0.1:${at.port}/console/projects/${fixture.project}${path}`
    await page.goto(address)
    return { page, address, faults, calls, visits }
  }

  const signIn = (page: Page) =>
    page.getByRole("region", { name: "Sign in as a person" }).getByRole("button", { name: "Sign in" })

  async function giveName(page: Page, name: string): Promise<void> {
    await page.getByLabel("Name", { exact: true }).fill(name)
    await page.getByRole("button", { name: "Sign in" }).click()
  }

  /** Ends what the tab keeps of the sign-in, as the end of its token does. */
  const forget = (page: Page) => page.evaluate(`sessionStorage.removeItem("session")`)

  browserNeeded.it("comes back to the page of before, and neither a reload nor a new tab asks anything", async () => {
    const { page, address, faults, calls, visits } = await open("/jobs?status=failed&label=team%3Dred")
    await signIn(page).click()
    await giveName(page, "ada")
    await page.getByText("Live", { exact: true }).waitFor()
    expect(page.url()).toBe(address)
    visits.length = 0
    const entries = await page.evaluate("history.length")
    await page.reload()
    await page.getByText("Live", { exact: true }).waitFor()
    expect(page.url()).toBe(address)
    // The way back leads to the page before, and not to the same sign-in.
    expect(await page.evaluate("history.length")).toBe(entries)
    const second = await page.context().newPage()
    await second.goto(address)
    await second.getByText("Live", { exact: true }).waitFor()
    expect(visits).toEqual([])
    expect(await page.evaluate("JSON.stringify({ ...sessionStorage })")).not.toMatch(/verifier/)
    expect(await page.evaluate("JSON.stringify({ ...localStorage })")).not.toMatch(/eyJ/)
    expect(await page.evaluate("document.cookie")).toBe("")
    await second.close()
    await forget(page)
    await page.reload()
    await page.getByText("Live", { exact: true }).waitFor()
    expect(page.url()).toBe(address)
    expect(await page.evaluate("history.length")).toBe(entries)
    expect(visits).toEqual([expect.stringContaining("prompt=none")])
    expect(calls.length > 0).toBe(!isByFacade)
    expect(faults).toEqual([])
    if (isByFacade) expect(replica.logged()).not.toContain(CLIENT.secret)
  })

  browserNeeded.it("reads why Berth rejects the token, and is not sent around in circles", async () => {
    const other = await start("another-audience")
    const { page, address, visits } = await open("/jobs", other)
    await signIn(page).click()
    await giveName(page, "ada")
    const audience = isByFacade ? CLIENT.clientId : issuer.audience
    await page.getByText(`Berth rejects its token. The token must have the audience ${audience}.`).waitFor()
    expect(page.url()).toBe(address)
    visits.length = 0
    await page.reload()
    await signIn(page).waitFor()
    expect(await signIn(page).isEnabled()).toBe(true)
    expect(visits).toEqual([])
    await other.close()
  })

  // In the rest only the console acts, with either exchange of the code: one way shows it.
  if (isByFacade && !isNightly) return

  browserNeeded.it("reads why groups give no role, in the project and in the list of projects", async () => {
    const { page } = await open("")
    await signIn(page).click()
    await giveName(page, "gina")
    const sentence = page.getByText("it has _claim_names instead")
    await sentence.waitFor()
    expect(await sentence.textContent()).toContain("You have no role in a project of this address.")
    await page.getByRole("link", { name: "Choose another project" }).click()
    await page.getByText("You are in no organization yet.").waitFor()
    expect(await sentence.textContent()).toMatch(/^Your token lists none of your groups/)
  })

  browserNeeded.it("signs in with one click where the issuer has forgotten the person", async () => {
    const { page, address, visits } = await open("/jobs?status=failed")
    await signIn(page).click()
    await giveName(page, "ada")
    await page.getByText("Live", { exact: true }).waitFor()
    await page.context().clearCookies()
    await forget(page)
    visits.length = 0
    const { promise: isAnswered, resolve: answer } = Promise.withResolvers<void>()
    // The program that leads to the issuer is held. A navigation that is held would leave no page to look at.
    await page.route("**/assets/oidc-*.js", (route) => isAnswered.then(() => route.continue()))
    await page.reload({ waitUntil: "commit" })
    // The page waits for the issuer, so nothing can be filled in or clicked that its answer would take away.
    await page.getByRole("button", { name: "Signing in" }).waitFor()
    expect(await page.getByRole("textbox").count()).toBe(0)
    expect(await page.getByRole("button", { disabled: false }).count()).toBe(0)
    answer()
    await signIn(page).waitFor()
    expect(visits).toEqual([expect.stringContaining("prompt=none")])
    expect(page.url()).toBe(address)
    expect(await page.getByLabel("Project").inputValue()).toBe(fixture.project)
    expect(await page.getByRole("alert").count()).toBe(0)
    await signIn(page).click()
    await giveName(page, "ada")
    await page.getByText("Live", { exact: true }).waitFor()
    expect(page.url()).toBe(address)
  })

  browserNeeded.it("can try again after the way back from the issuer", async () => {
    const { page, address } = await open("/jobs")
    await page.evaluate("window.isKept = true")
    await signIn(page).click()
    await page.getByLabel("Name", { exact: true }).waitFor()
    await page.goBack({ waitUntil: "commit" })
    await signIn(page).waitFor()
    // The browser shows the page as it was, and does not load it again.
    expect(await page.evaluate("window.isKept")).toBe(true)
    expect(await signIn(page).isEnabled()).toBe(true)
    await signIn(page).click()
    await giveName(page, "ada")
    await page.getByText("Live", { exact: true }).waitFor()
    expect(page.url()).toBe(address)
  })

  browserNeeded.it("stays signed out, and learns which project is not theirs", async () => {
    const { page, address } = await open("/jobs")
    await signIn(page).click()
    await giveName(page, "grace")
    // Grace is in no organization, so the API knows her, and shows her no project.
    await page.getByRole("alert").waitFor()
    expect(page.url()).toBe(address)
    await page.getByRole("link", { name: "Choose another project" }).click()
    await page.getByText("You are in no organization yet.").waitFor()
    await page.getByText("Settings").click()
    await page.getByRole("button", { name: "Sign out" }).click()
    await signIn(page).waitFor()
    await page.reload()
    await signIn(page).waitFor()
    expect(await signIn(page).isEnabled()).toBe(true)
  })
})
