import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Browser, chromium } from "playwright-core"
import { afterAll, beforeAll, expect } from "vitest"
import { CLIENT_ID, type DevelopmentIssuer, startIssuer } from "../../dev/issuer.ts"
import { buildConsole } from "../../scripts/console.ts"
import { systemClock } from "../../src/apis/clock.ts"
import { TokenVerifier } from "../../src/identity/oidc.ts"
import { type Replica, startReplica, testFixture } from "../facade/harness.ts"
import { ARGUMENTS, browserNeeded, executablePath } from "./browser.ts"

browserNeeded.describe("a person who signs in to the console", () => {
  const fixture = testFixture("console-people")
  let folder: string
  let issuer: DevelopmentIssuer
  let replica: Replica
  let browser: Browser

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-console-people-"))
    const consoleFolder = join(folder, "console")
    await buildConsole(consoleFolder)
    issuer = await startIssuer({ port: 0, dataDir: folder })
    replica = await startReplica({
      consoleFolder,
      tokens: new TokenVerifier({ issuers: [issuer], clock: systemClock }),
      settings: { signIn: { issuer: issuer.issuer, audience: issuer.audience, clientId: CLIENT_ID } },
    })
    browser = await chromium.launch({ executablePath, args: ARGUMENTS })
  })
  afterAll(async () => {
    await browser?.close()
    await replica?.close()
    await issuer?.close()
    await rm(folder, { recursive: true, force: true })
  })

  browserNeeded.it("comes back to the page of before, and a reload asks nothing", async () => {
    const page = await browser.newPage()
    const violations: string[] = []
    page.on("console", (message) => {
      if (/Content Security Policy|TrustedScript/.test(message.text())) violations.push(message.text())
    })
    const address = `http://127.0.0.1:${replica.port}/console/projects/${fixture.project}/jobs`
    await page.goto(address)
    await page.getByRole("button", { name: "Sign in" }).first().click()
    await page.getByLabel("Name").fill("ada")
    await page.getByRole("button", { name: "Sign in" }).click()
    // Ada is in no organization, so the API knows her, and shows her no project.
    await page.getByRole("alert").waitFor()
    expect(page.url()).toBe(address)
    await page.getByRole("link", { name: "Choose another project" }).click()
    await page.getByText("You are in no organization yet.").waitFor()
    await page.reload()
    await page.getByText("You are in no organization yet.").waitFor()
    const kept = (await page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }])")) as string
    expect(kept).not.toMatch(/eyJ|verifier/)
    await page.getByText("Settings").click()
    await page.getByRole("button", { name: "Sign out" }).click()
    await page.getByRole("button", { name: "Sign in" }).first().waitFor()
    await page.reload()
    await page.getByRole("button", { name: "Sign in" }).first().waitFor()
    expect(violations).toEqual([])
  })
})
