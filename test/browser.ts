import { existsSync } from "node:fs"
import { join } from "node:path"
import { type Browser, chromium, type LaunchOptions, type Page } from "playwright-core"
import { needing } from "./needing.ts"

const BROWSERS = ["chromium", "chromium-browser", "google-chrome"].map((name) => `/usr/bin/${name}`)
const installed = BROWSERS.find((path) => existsSync(path))

/** Reason for which there is no browser; undefined if there is one. */
export const browserMissing = installed === undefined ? `none of ${BROWSERS.join(", ")} is installed` : undefined

export const browserNeeded = needing(browserMissing)

/** Starts the installed browser with less work: the file says how. */
const LAUNCHER = join(import.meta.dirname, "chromium.sh")

/** Chromium's sandbox needs a user other than root. */
const ARGUMENTS = ["--no-sandbox", "--disable-gpu"]

/** Starts the installed browser. Only for tests of `browserNeeded`. */
export function launchBrowser(options: LaunchOptions = {}): Promise<Browser> {
  const env = { ...process.env, CHROMIUM: installed }
  return chromium.launch({ executablePath: LAUNCHER, env, args: ARGUMENTS, ...options })
}

/**
 * Chromium aborts requests when the machine gets a network interface, as with each container of another suite. The
 * console sends such requests again.
 */
const INTERFACE = "net::ERR_NETWORK_CHANGED"

/**
 * Collects errors of a page's console, policy reports and requests to other places.
 * @param allowed beginnings of the addresses that the page may request
 * @param issuer origin of the sign-in, whose pages may have errors. Absent: there is none
 */
export function collectFaults(page: Page, allowed: readonly string[], issuer?: string): string[] {
  const faults: string[] = []
  page.on("console", (message) => {
    const isOfIssuer = issuer !== undefined && message.location().url.startsWith(`${issuer}/`)
    const text = message.text()
    if (["error", "warning"].includes(message.type()) && !isOfIssuer && !text.includes(INTERFACE)) faults.push(text)
  })
  page.on("pageerror", (error) => faults.push(error.message))
  page.on("request", (request) => {
    if (!allowed.some((beginning) => request.url().startsWith(beginning))) faults.push(request.url())
  })
  return faults
}
