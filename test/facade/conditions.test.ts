import { glob, readFile } from "node:fs/promises"
import { afterAll, beforeAll, expect, it, vi } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { KindDefinition } from "../../src/core/apis/kind.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { launchName } from "../../src/core/apis/launch.ts"
import type { Condition } from "../../src/core/apis/schema.ts"
import { isTrouble } from "../../src/core/apis/trouble.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import type { ObjectRef, Resource } from "../../src/core/kube/resource.ts"
import {
  API_KEYS,
  CONNECTIONS,
  CRON_JOBS,
  JOB_ARRAYS,
  JOBS,
  LAUNCHES,
  MACHINES,
  ORGANIZATIONS,
  PROJECTS,
  WEBHOOKS,
} from "../../src/core/resources.ts"
import { run } from "../cli/command.ts"
import { rendered } from "../console/views.js"
import { makeKey } from "../harness/api-keys.ts"
import { launchOf } from "../harness/builders.ts"
import { BASE_DOMAIN, caller } from "../harness/caller.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"

/**
 * The table of conditions: each kind that has some, each of its declared conditions, each status. The object's sentence,
 * which `kubectl describe` prints, is the same by REST, by `berth` and in the console.
 */
const fixture = projectFixture("facade-conditions")
const { client } = fixture
const call = caller(() => replica, fixture)
let replica: Replica
let issuer: Issuer
let token: string
let otherKey: string

// The console's state reads these of the browser.
vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => undefined })
vi.stubGlobal("document", { documentElement: { dataset: {} }, addEventListener: () => undefined })
vi.stubGlobal("location", {
  origin: "http://console.test",
  pathname: "/console/",
  href: "http://console.test/console/",
})

beforeAll(async () => {
  issuer = await startIssuer()
  const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
  replica = await startReplica({ tokens, settings: { defaultProject: fixture.project } })
  token = await issuer.token({ sub: "table" })
  const other = { name: `${fixture.project}-keys`, namespace: `${fixture.namespace}-keys` }
  await client.create(NAMESPACES, { metadata: { name: other.namespace } } as never)
  await confirmedProject(client, { ...other, organization: fixture.organization })
  otherKey = await makeKey(client, other.namespace, "admin", { name: "table" })
})
afterAll(async () => {
  await Promise.all([replica.close(), issuer.close()])
  for (const name of ["own", "keys"]) await client.delete(PROJECTS, { name: `${fixture.project}-${name}` })
  await client.delete(ORGANIZATIONS, { name: fixture.organization })
})

/** Places in which a person sees objects of a kind. `T`: the record of REST. */
interface Surface {
  resource: Resource
  /** Creates the object. */
  make: () => Promise<ObjectRef>
  /** Path of the record, or of a list with it. */
  path: string
  /** The command that shows it. */
  argv: string[]
  /** Caller. Default: the project's admin. */
  by?: "person" | "otherProject"
  /** Returns the console's view of the answer. Absent: the console doesn't show the kind. */
  // biome-ignore lint/suspicious/noExplicitAny: each kind has records of its own
  view?: (answer: any) => Promise<string>
}

const { namespace } = fixture
const named = (name = "table") => ({ namespace: fixture.namespace, name })

const SURFACES: Record<string, Surface> = {
  Job: {
    resource: JOBS,
    make: async () => {
      await call("/1/jobs", { body: { name: "table", image: "a" } })
      return named()
    },
    path: "/1/jobs/table",
    argv: ["show", "table"],
    view: (job) => rendered("Summary", "job", { job }),
  },
  Launch: {
    resource: LAUNCHES,
    make: async () => {
      await call("/1/jobs", { body: { name: "launched", image: "a" } })
      const { spec } = launchOf(await client.get(JOBS, named("launched")), 1)
      const ref = { namespace: SYSTEM_NAMESPACE, name: launchName(spec.job.uid, 1) }
      await client.create(LAUNCHES, { kind: "Launch", metadata: ref, spec } as never)
      return ref
    },
    path: "/1/jobs/launched/launches",
    argv: ["show", "launched"],
    view: ({ launches: [launch] }) => rendered("Machine", "launch", { launch }),
  },
  JobArray: {
    resource: JOB_ARRAYS,
    make: async () => {
      await call("/1/arrays", { body: { name: "table", size: 2, job_definition: { image: "a" } } })
      return named()
    },
    path: "/1/arrays/table",
    argv: ["array", "show", "table"],
    view: (array) => rendered("Summary", "array", { array }),
  },
  CronJob: {
    resource: CRON_JOBS,
    make: async () => {
      await call("/1/cronjobs", { body: { name: "table", cron_spec: "@daily", job_definition: { image: "a" } } })
      return named()
    },
    path: "/1/cronjobs/table",
    argv: ["cron", "show", "table"],
    view: (cronJob) => rendered("Summary", "cronJob", { cronJob }),
  },
  Connection: {
    resource: CONNECTIONS,
    make: async () => {
      const secret = { access_key_id: "AKIA0123456789ABCDEF", secret_access_key: "s".repeat(40) }
      await call("/1/connections", { body: { name: "table", type: "aws", ...secret } })
      return named()
    },
    path: "/1/connections/table",
    argv: ["connection", "ls"],
    view: (connection) => rendered("ConnectionPanel", "connection", { connection }),
  },
  Machine: {
    resource: MACHINES,
    make: async () => {
      await call("/1/machines", { body: { name: "table" } })
      return named()
    },
    path: "/1/machines/table",
    argv: ["machine", "show", "table"],
    view: (machine) => rendered("MachinePanel", "machine", { machine }),
  },
  Webhook: {
    resource: WEBHOOKS,
    make: async () => {
      await call("/1/webhooks", { body: { name: "table", url: "https://ci.example.com", events: ["job.*"] } })
      return named()
    },
    path: "/1/webhooks/table",
    argv: ["webhook", "show", "table"],
    view: (webhook) => rendered("WebhookPanel", "webhook", { webhook }),
  },
  ApiKey: {
    resource: API_KEYS,
    // No controller tends to the keys of this project.
    by: "otherProject",
    make: () => Promise.resolve({ namespace: `${namespace}-keys`, name: "table" }),
    path: "/1/keys?name=table",
    argv: ["key", "ls"],
    view: ({ keys }) => rendered("Keys", "keys", { keys }),
  },
  Organization: {
    resource: ORGANIZATIONS,
    make: async () => {
      const name = fixture.organization
      const members = [{ userId: `${issuer.url}#table`, role: "owner" as const }]
      await client.create(ORGANIZATIONS, { metadata: { name }, spec: { displayName: "Table", members } } as never)
      return { name }
    },
    path: "/1/organizations",
    argv: ["org", "ls"],
    by: "person",
    view: ({ organizations: [organization] }) => rendered("GroupPanel", "projects", { organization, projects: [] }),
  },
  Project: {
    resource: PROJECTS,
    make: async () => {
      const name = `${fixture.project}-own`
      await confirmedProject(client, { name, organization: fixture.organization, namespace: `${namespace}-own` })
      return { name }
    },
    path: `/1/organizations/${fixture.organization}/projects`,
    argv: ["project", "ls"],
    by: "person",
    view: ({ projects }) => rendered("GroupPanel", "projects", { organization: { displayName: "o" }, projects }),
  },
}

/** Asks REST, the command and the console as the surface's reader. */
async function seen({ path, argv, by, view }: Surface) {
  const project = by === "otherProject" ? `${fixture.project}-keys` : fixture.project
  const credential =
    by === "person"
      ? { key: "", headers: { Authorization: `Bearer ${token}` }, host: BASE_DOMAIN }
      : { key: by === "otherProject" ? otherKey : fixture.keys.admin, host: `${project}.${BASE_DOMAIN}` }
  const response = await call(path, credential)
  const answer = await response.json()
  expect([response.status, response.status === 200 ? "" : answer]).toEqual([200, ""])
  const environment = by === "person" ? { BERTH_TOKEN: token } : { BERTH_API_KEY: credential.key }
  const url = `http://127.0.0.1:${replica.port}`
  const { code, out, err } = await run(argv, { BERTH_URL: url, BERTH_PROJECT: project, ...environment })
  expect([code, code === 0 ? "" : err]).toEqual([0, ""])
  return { rest: JSON.stringify(answer), berth: out + err, console: view && (await view(answer)) }
}

/** Kinds whose records have `conditions` only if there is a trouble. */
const TROUBLES_ONLY = ["Job", "ApiKey", "Organization", "Project"]

const KINDS_WITH_CONDITIONS = KINDS.filter(({ conditions }) => conditions.length > 0)

it("each kind with conditions is in the table", () => {
  expect(Object.keys(SURFACES).sort()).toEqual(KINDS_WITH_CONDITIONS.map(({ kind }) => kind).sort())
})

it("controllers write only conditions that a kind declares", async () => {
  const found: string[] = []
  for await (const file of glob("src/operator/**/*.ts")) {
    if (file.endsWith(".test.ts")) continue
    const source = await readFile(file, "utf8")
    if (/\bcondition(OnceTrue)?\(\s*["'`]|\{ type: "[A-Z]\w*", status/.test(source)) found.push(file)
  }
  expect(found, "name the type by the kind's constant, such as JobCondition.Ready").toEqual([])
})

it.each(KINDS_WITH_CONDITIONS.map((kind): [string, KindDefinition] => [kind.kind, kind]))(
  "%s: the sentence of each condition is the same everywhere",
  async (kind, { conditions: types }) => {
    const surface = SURFACES[kind] as Surface
    const ref = await surface.make()
    for (const status of ["False", "Unknown", "True"] as const) {
      const conditions = types.map(
        (type): Condition => ({
          ...{ type, status, reason: `Because${type}`, message: `the ${kind} has ${type} ${status}` },
          ...{ observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z" },
        }),
      )
      await client.patchStatus(surface.resource, ref, { merge: { status: { conditions } } } as never)
      const expected = conditions.filter((one) => isTrouble(one))
      await eventually(async () => {
        const { rest, berth, console } = await seen(surface)
        const rows = expected.map(({ type, message }) => {
          const isSaid = [rest, berth, console ?? message].map((text) => text.includes(message))
          return { type, status, kubectl: message, rest: isSaid[0], berth: isSaid[1], console: isSaid[2] }
        })
        expect(rows).toEqual(rows.map((row) => ({ ...row, rest: true, berth: true, console: true })))
        // REST has the good ones too, except where the contract or long lists allow no more than a trouble.
        for (const { message } of conditions.filter((one) => !isTrouble(one) && one.status === "False")) {
          if (!TROUBLES_ONLY.includes(kind)) expect(rest).toContain(message)
          expect(`${berth}${console ?? ""}`).not.toContain(message)
        }
      }, 10)
    }
  },
)
