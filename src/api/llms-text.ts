import { Router } from "express"
import { API_ROOT, allowNoOther } from "./http/mount.ts"

const LLMS_PATH: string = "/llms.txt"

/** Seconds for which clients may cache the text. */
const MAX_AGE_SECONDS = 300

const REPOSITORY = "https://github.com/berth-dev/berth"

/** Pages of docs/ for programs that write or run jobs, each with what it has. */
const PAGES: readonly (readonly [file: string, title: string, what: string])[] = [
  ["cli.md", "The command berth", "commands, exit codes, variables for scripts"],
  ["api.md", "The REST API", "a tour, addresses, lists, prices, idempotent requests"],
  ["data.md", "Code and data", "local folders, buckets, logs"],
  ["costs.md", "Costs", "limits of a job, budgets, what was spent"],
  ["arrays.md", "Arrays", "one definition with many values"],
  ["order.md", "Order", "jobs that wait for other jobs"],
  ["retries.md", "Retries", "which failures get another machine"],
  ["failures.md", "Failures", "why a job failed, and what helps"],
  ["ci.md", "CI", "the GitHub Action, with a key or without one"],
  ["integrations.md", "Integrations", "Argo Workflows and coding agents"],
]

/**
 * Serves `/llms.txt`, which lists for language models where to read about this API: https://llmstxt.org. It is public, and the same
 * on every host, so it shows no project.
 */
export function llmsRouter({ version }: { version: string }): Router {
  const text = llmsText(version)
  const router = Router({ caseSensitive: true })
  const route = router.route(LLMS_PATH)
  route.get((_req, res) => {
    res.set("Cache-Control", `public, max-age=${MAX_AGE_SECONDS}`).type("text/plain").send(text)
  })
  allowNoOther(route, ["GET", "HEAD"])
  return router
}

function llmsText(version: string): string {
  const pages = PAGES.map(([file, title, what]) => `- [${title}](${REPOSITORY}/blob/v${version}/docs/${file}): ${what}`)
  return `# Berth

> Runs declarative container jobs on the cheapest cloud VM that fits. A request states image, resources and limits. Berth chooses machine and region by price, and shows the price before it creates anything.

Every request needs an API key of a project in the header X-Service-Api-Key, or a bearer token. A job costs money until it ends: plan it with \`POST ${API_ROOT}/jobs?dry_run=true\` first, and give it \`maxCostUsd\` and \`timeoutSeconds\`. The command \`berth skill\` prints instructions for coding agents.

## API

- [OpenAPI document](${API_ROOT}/openapi.json): every operation, field and error of version ${version}
- [API reference](${API_ROOT}/docs): the same for people
- [Installation](/.well-known/berth): how to sign in, and how to address a project

## Docs

${pages.join("\n")}
`
}
