import { access } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { BASE_DOMAIN, caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-llms")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica({ settings: { defaultProject: fixture.project } })
})
afterAll(() => replica.close())

const read = async (host: string) => {
  const answer = await call("/llms.txt", { key: "", host })
  return { answer, text: await answer.text() }
}

it("is there without a credential, in the form of llmstxt.org", async () => {
  const { answer, text } = await read(BASE_DOMAIN)
  expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/plain; charset=utf-8"])
  expect(answer.headers.get("cache-control")).toBe("public, max-age=300")
  expect(text).toMatch(
    /^# Berth\n\n> .+\n\n[^#]+\n\n## API\n\n(- \[.+\]\(.+\): .+\n)+\n## Docs\n\n(- \[.+\]\(.+\): .+\n)+$/,
  )
  expect((await problemIn(await call("/llms.txt", { key: "", method: "POST", body: {} }))).status).toBe(405)
})

it("is the same on the host of a project, and of one that does not exist, and names none", async () => {
  const texts = await Promise.all(
    [BASE_DOMAIN, `${fixture.project}.${BASE_DOMAIN}`, `no-such-project.${BASE_DOMAIN}`].map(read),
  )
  const [{ text } = { text: "" }] = texts
  expect(new Set(texts.map((one) => one.text))).toEqual(new Set([text]))
  for (const secret of [fixture.project, fixture.namespace, fixture.organization]) expect(text).not.toContain(secret)
})

it("has links that lead to a page each: here without a credential, or to a file of the repository at this version", async () => {
  const { text } = await read(BASE_DOMAIN)
  const links = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, link = ""]) => link)
  const own = links.filter((link) => link.startsWith("/"))
  expect(own).toContain("/1/openapi.json")
  for (const link of own) expect((await call(link, { key: "", host: BASE_DOMAIN })).status, link).toBe(200)
  const files = links.filter((link) => !link.startsWith("/"))
  expect(files.length).toBeGreaterThan(5)
  for (const link of files) {
    const [, path = ""] =
      /^https:\/\/github[.]com\/berth-dev\/berth\/blob\/v1[.]2[.]3\/(docs\/[a-z-]+[.]md)$/.exec(link) ?? []
    await expect(access(join(import.meta.dirname, "..", "..", path || link)), link).resolves.toBeUndefined()
  }
})
