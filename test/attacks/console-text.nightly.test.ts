import { afterAll, beforeAll, expect } from "vitest"
import type { Discoverer } from "../../src/api/resources/discovery/schema.ts"
import { browserNeeded } from "../browser.ts"
import { consoleSite, goTo, type Visit } from "../console/browser.ts"
import { people } from "../console/people.ts"
import { fillProject, SHOWN_AFTER_MINUTES, spend, writeLog } from "../console/sample.ts"
import { PAGES, PAGES_OF_PEOPLE, press, type Scene, STATES, STATES_OF_PEOPLE } from "../console/scenes.ts"
import { bucket } from "../discovery/accounts.ts"
import { caller, recordIn } from "../harness/caller.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { type MarkingProxy, placesOfText, startMarkingProxy } from "./marked-answers.ts"

/** Texts that run a script in each way in which a page could take them for more than text. */
const MARK = {
  before: "javascript:hacked(1)//",
  after: [
    `'"></textarea></script></style><img data-hacked src=x onerror=hacked(2)><svg data-hacked onload=hacked(3)></svg>`,
    "<script data-hacked>hacked(4)</script><a data-hacked href=javascript:hacked(5)>[a](javascript:hacked(6))",
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the syntax of other template engines
    "\u001b]8;;javascript:hacked(7)\u0007b\u001b]8;;\u0007\u001b[31m\u202e{{hacked(8)}}${hacked(9)}",
  ].join(""),
}

/** Places in answers that the console never asks for. */
const NOT_ASKED_FOR = ["ConnectionSummary.id", "ConnectionSummary.name"]

/** Scenes that look otherwise when each field has the mark: the API refuses such a plan, and each member has an e-mail address. */
const CHANGED: Record<string, Partial<Scene>> = {
  "new-job": { shown: "Plan and price" },
  "member-role": { prepare: press(/^Change the role of/) },
}

/** Text in an address, as a link to the console can have it. */
const TYPED = "<img/data-hacked/src=x/onerror=hacked(10)>"

const linked = (path: string, shown = TYPED): Scene => ({ name: path, path, shown })
const typed = encodeURIComponent(TYPED)
const ADDRESSES: readonly Scene[] = [
  linked(`/jobs/${typed}`),
  linked(`/arrays/${typed}`),
  linked(`/cronjobs/${typed}`),
  linked(`/jobs?cronjob=${typed}`),
  linked(`/jobs?array=${typed}`),
  linked(`/jobs?name=${typed}&tag=${typed}&label=${typed}&ended_after=${typed}`, "Jobs"),
  linked(`/costs?by=${encodeURIComponent(`label:${TYPED}`)}`, "Costs"),
  linked(`/new?from=${typed}`),
]

browserNeeded.describe("a text of a user in the console", () => {
  const fixture = projectFixture("attack-console")
  const team = people(fixture)
  const discover: Discoverer = async (_sort, connections) => {
    const found = connections.map((connection) => ({ connection, resource: bucket("training-data") }))
    return { found, failures: connections.map((connection) => ({ connection, reason: "Denied", message: "no more" })) }
  }
  const site = consoleSite(fixture, () => ({ ...team.replicaOptions(), discover, caps: { maxMonthlyUsd: 5000 } }))
  let proxy: MarkingProxy

  beforeAll(async () => {
    const call = caller(() => site.replica, fixture)
    const sample = { fixture, replica: site.replica, call }
    await fillProject(sample)
    await spend(sample)
    await team.makeOrganization("Acme", { ada: "owner", bea: "admin", cem: "member" })
    const { id } = await recordIn(await call("/1/jobs/nightly-1"))
    await writeLog(
      sample,
      id,
      `${MARK.before} ${MARK.after}\n\u001b[1m${MARK.before}\u001b[0m\r${MARK.after}\nlast line\n`,
    )
    proxy = await startMarkingProxy(() => site.replica.port, MARK)
  })
  afterAll(() => proxy?.close())

  /** Collects what no text may make the browser do, besides what every visit collects. */
  async function watch({ page, faults }: Visit): Promise<void> {
    page.on("dialog", (dialog) => {
      faults.push(`dialog ${dialog.message()}`)
      void dialog.dismiss()
    })
    page.context().on("page", (opened) => void faults.push(`window ${opened.url()}`))
    page.on("framenavigated", (frame) => {
      if (!frame.url().startsWith(`${proxy.url}/`)) faults.push(`navigation to ${frame.url()}`)
    })
    await page.exposeFunction("hacked", (way: number) => void faults.push(`script ${way}`))
    await page.clock.setFixedTime(Date.now() + SHOWN_AFTER_MINUTES * 60_000)
  }

  async function showAll({ page, faults }: Visit, scenes: readonly Scene[]): Promise<void> {
    await watch({ page, faults })
    for (const scene of scenes) {
      const { name, path, shown, prepare } = { ...scene, ...CHANGED[scene.name] }
      // The states of the scene before end with its page.
      await goTo(page, fixture, "/jobs?name=none")
      await goTo(page, fixture, path)
      await page.getByText(shown).first().waitFor()
      await prepare?.(page)
      expect.soft(await page.evaluate(MARKED_ELEMENTS), name).toEqual([])
      expect.soft(await page.evaluate(SHOWN_TEXT), name).toContain(MARK.before)
    }
    // The API refuses what a form sends with the marks.
    expect(faults.filter((fault) => !fault.startsWith("Failed to load resource:"))).toEqual([])
    await page.close()
  }

  browserNeeded.it("is only text on every page, whichever field has it", async () => {
    const pages = [...PAGES, ...STATES.filter(({ name }) => name !== "offline")]
    const log: Scene = { name: "log", path: "/jobs/nightly-1?tab=log", shown: "last line" }
    await showAll(await site.signedIn("", { origin: proxy.url }), [...pages, log, ...ADDRESSES])
    await showAll(await site.signedInAs("ada", "", { origin: proxy.url }), [...PAGES_OF_PEOPLE, ...STATES_OF_PEOPLE])
    // A new field of an answer has the mark by itself. A new answer needs a page that shows it.
    const others = [...placesOfText(["get"])].filter((place) => !proxy.marked.has(place))
    expect(others.toSorted()).toEqual(NOT_ASKED_FOR)
  })
})

/** Script that returns the elements which only a text can have made, those that run a script, and links to other places. */
const MARKED_ELEMENTS = `
  [...document.querySelectorAll("*")]
    .filter((element) =>
      element.matches("[data-hacked], iframe, object, embed, base, meta[http-equiv=refresh]") ||
      [...element.attributes].some(({ name, value }) =>
        name.startsWith("on") || /^\\s*(javascript|vbscript|data:text)/i.test(/^(xlink:)?(href|src|action|formaction)$/.test(name) ? value : "")))
    .map((element) => element.outerHTML.slice(0, 200))
    .concat([...document.links].filter(({ origin }) => origin !== location.origin).map(({ href }) => href))`

/** Script that returns what a page shows, in its forms too. */
const SHOWN_TEXT = `document.body.innerText + [...document.querySelectorAll("input, textarea")].map(({ value }) => value).join()`
