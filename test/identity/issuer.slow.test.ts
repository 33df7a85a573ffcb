import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, it, vi } from "vitest"
import { startIssuer } from "../../dev/issuer.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { userIdIn } from "../../src/core/identity/login.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { Browser, signIn } from "../sign-in.ts"

const dataDir = await mkdtemp(join(tmpdir(), "berth-issuer-"))
afterAll(() => rm(dataDir, { recursive: true }))

it("the issuer signs a person in with tokens that stay valid after the issuer restarts", async () => {
  const first = await startIssuer({ port: 0, dataDir })
  const token = await signIn(first.issuer, "ada")
  const verifier = new TokenVerifier({ issuers: [first], clock: systemClock })
  expect(userIdIn(token)).toBe(`${first.issuer}#ada`)
  expect(userIdIn("a-token-that-only-its-issuer-reads")).toBeUndefined()
  const ada = { userId: `${first.issuer}#ada`, email: "ada@localhost" }
  const person = await verifier.verify(token)
  const groupsTrouble = expect.objectContaining({ reason: "GroupsMissing", isFault: false })
  expect(person).toEqual({ ...ada, expiresAt: expect.any(String), groupsTrouble })
  await first.close()
  const again = await startIssuer({ port: Number(new URL(first.issuer).port), dataDir })
  expect(await new TokenVerifier({ issuers: [again], clock: systemClock }).verify(token)).toEqual(person)
  await again.close()
})

it("the issuer asks for a name each time and for no password, on its own pages, and prints nothing", async () => {
  const printed = [vi.spyOn(console, "info"), vi.spyOn(console, "warn"), vi.spyOn(console, "error")]
  const issuer = await startIssuer({ port: 0, dataDir })
  const browser = new Browser()
  const tokens = [await signIn(issuer.issuer, "ada", browser), await signIn(issuer.issuer, "grace", browser)]
  await issuer.close()
  expect(tokens.map(userIdIn)).toEqual([`${issuer.issuer}#ada`, `${issuer.issuer}#grace`])
  const pages = browser.pages.join("\n")
  expect(pages).not.toContain('type="password"')
  expect(pages).not.toMatch(/debug|prompt|Authorize/i)
  expect(pages).toContain("Enter any name")
  expect(pages).toContain("You are signed in")
  for (const print of printed) expect(print).not.toHaveBeenCalled()
})

it("the issuer shows which names are allowed, and rejects a late sign-in page with instructions", async () => {
  const issuer = await startIssuer({ port: 0, dataDir })
  const late = await fetch(`${issuer.issuer}/sign-in/unknown`, { headers: { accept: "text/html" } })
  expect([late.status, await late.text()]).toEqual([400, expect.stringContaining("npm run login")])
  const browser = new Browser()
  await expect(signIn(issuer.issuer, " ", browser)).rejects.toThrow("the forms don't end")
  expect(browser.pages.at(-1)).toContain("A name has 1 to 64 printable characters")
  await issuer.close()
})
