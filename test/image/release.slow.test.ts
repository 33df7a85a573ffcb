import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { load } from "js-yaml"
import { describe, expect, it } from "vitest"

const WORKFLOWS = join(import.meta.dirname, "..", "..", ".github", "workflows")

interface Job {
  permissions?: Record<string, string>
  steps?: { uses?: string; run?: string }[]
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

  it("test and sign the image, pushed by its digest, before they give it a tag", () => {
    const [, { steps = [] } = {}] = jobsOf("release.yml").find(([name]) => name === "image") ?? []
    const order = [/skopeo copy .+ "docker:\/\/\$IMAGE@\$digest"/, /docker run/, /cosign sign/, /cosign attest/]
    const places = [...order, /imagetools create/].map((what) => steps.findIndex(({ run = "" }) => what.test(run)))
    expect(places).toEqual(places.toSorted((a, b) => a - b))
    expect(places[0]).toBeGreaterThan(0)
  })

  it("publish what the script builds, which a rehearsal runs too", () => {
    const scripts = jobsOf("release.yml").flatMap(([name, { steps = [] }]) =>
      steps.flatMap(({ run = "" }) => (run.includes("scripts/release.ts") ? name : [])),
    )
    expect(scripts).toEqual(["files"])
  })
})
