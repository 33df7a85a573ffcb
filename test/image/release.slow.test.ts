import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { load } from "js-yaml"
import { describe, expect, it } from "vitest"

const WORKFLOWS = join(import.meta.dirname, "..", "..", ".github", "workflows")

interface Job {
  permissions?: Record<string, string>
  steps?: { uses?: string; run?: string; with?: { outputs?: string; tags?: string } }[]
}

function jobsOf(file: string): [name: string, job: Job][] {
  return Object.entries((load(readFileSync(join(WORKFLOWS, file), "utf8")) as { jobs: Record<string, Job> }).jobs)
}

describe("the release workflows", () => {
  const publishing = readdirSync(WORKFLOWS)
    .flatMap(jobsOf)
    .filter(([, { permissions = {} }]) => Object.values(permissions).includes("write"))

  it.each(publishing)(
    "run in %s, which may publish, only actions of known commits and no npm package",
    (_name, job) => {
      const actions = (job.steps ?? []).flatMap(({ uses }) => uses ?? [])
      expect(actions.filter((uses) => !/@[0-9a-f]{40}$/.test(uses))).toEqual([])
      expect((job.steps ?? []).filter(({ run = "" }) => /\b(npm|node)\b/.test(run))).toEqual([])
    },
  )

  it("test and sign the image before they give it a tag", () => {
    const [, { steps = [] } = {}] = jobsOf("release.yml").find(([name]) => name === "image") ?? []
    const pushed = steps.findIndex(({ with: inputs }) => inputs?.outputs?.includes("push-by-digest=true"))
    expect(steps[pushed]?.with?.tags).toBeUndefined()
    const order = [/docker run/, /cosign sign/, /cosign attest/, /imagetools create/]
    const places = order.map((what) => steps.findIndex(({ run = "" }) => what.test(run)))
    expect([pushed, ...places]).toEqual([pushed, ...places].toSorted((a, b) => a - b))
    expect(pushed).toBeGreaterThan(0)
  })
})
