import { readFile } from "node:fs/promises"
import { createRequire } from "node:module"
import type { Page } from "playwright-core"
import { expect } from "vitest"

/** Names of the tables that are wider than their place. */
const SIDEWAYS = `[...document.querySelectorAll(".table-frame")]
  .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
  .map((frame) => frame.getAttribute("aria-label"))`

interface AxeResult {
  violations: { id: string; help: string; nodes: { html: string; failureSummary?: string }[] }[]
}

let axe: Promise<string> | undefined

/** Rule of axe-core that depends on colors. The other rules find the same in each theme. */
export const CONTRAST = ["color-contrast"]

/** Returns the violations that axe-core finds on the page as it is. @param rules default: all */
export async function violationsOn(page: Page, rules?: readonly string[]): Promise<string[]> {
  axe ??= readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(await axe)
  const options = JSON.stringify({ resultTypes: ["violations"], ...(rules && { runOnly: rules }) })
  const { violations } = (await page.evaluate(`axe.run(${options})`)) as AxeResult
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  )
}

/** Shows the page at a width, and expects that neither it nor a table scrolls sideways. @param name of the page's state */
export async function expectFits(page: Page, name: string, width: number): Promise<void> {
  await page.setViewportSize({ width, height: 900 })
  await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
  expect.soft(await page.evaluate("document.documentElement.scrollWidth"), `${name} at ${width}`).toBe(width)
  expect.soft(await page.evaluate(SIDEWAYS), `tables of ${name} at ${width}`).toEqual([])
}
