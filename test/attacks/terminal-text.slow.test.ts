import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Discoverer } from "../../src/api/resources/discovery/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { LAUNCHES, ORGANIZATIONS } from "../../src/core/resources.ts"
import { run } from "../cli/command.ts"
import { onTerminal } from "../cli/pty.ts"
import { fillProject, measuredJob, measuredRuns, spend, writeLog } from "../console/sample.ts"
import { bucket } from "../discovery/accounts.ts"
import { caller, recordIn } from "../harness/caller.ts"
import { type Replica, shippedOffers, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { makeIdleVm } from "../harness/idle-vms.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { type MarkingProxy, startMarkingProxy } from "./marked-answers.ts"

/** Sequences that a terminal must not get: title, link, clipboard, screen, cursor, reset, answers, in both forms; and directions. */
const MARK = {
  before:
    "\u001b]0;title\u0007\u001b]8;;https://evil.test\u001b\\\u001b[2J\u001b[9;9H\u001bc\u009b2J\u0090q\u009c\u202e\u2066<hacked>",
  after: "\u001b[31m\u001b]52;c;aGk=\u0007\u001b[6n\u001b[?1049h\u001b_x\u001b\\\u0000\b\r\u007f\u2069\u001b[0m",
}

const RUN = ["--image", "alpine", "--yes", "--detach", "--name"]

/** Commands of a developer or an admin with an API key, by their name; each as it has the most to print. */
const BY_KEY: Record<string, string[][]> = {
  run: [[...RUN, "made"]],
  plan: [["--image", "alpine", "--gpu", "L4"]],
  rerun: [["fine-tune", "--yes", "--detach"]],
  attach: [["nightly-5"]],
  debug: [["nightly-5", "--", "true"]],
  exec: [["nightly-5", "--", "true"]],
  forward: [["nightly-5", "8080"]],
  ps: [["-a"], ["-a", "-o", "wide"], ["-a", "-o", "yaml"], ["-a", "-q"]],
  show: [
    ["first"],
    ["second"],
    ["third"],
    ["fine-tune"],
    ["nightly-5"],
    ["fine-tune", "--json"],
    ["lr-sweep"],
    ["none"],
  ],
  wait: [["nightly-1", "nightly-5"]],
  priority: [["nightly-1", "5"]],
  top: [["nightly-1"], ["fine-tune", "--json"], ["-q"], ["-o", "yaml"]],
  logs: [["nightly-1"], ["lr-sweep"], ["none"]],
  cancel: [
    ["sweep-1", "none"],
    ["first", "--and-dependents", "--yes"],
    ["none", "--and-dependents"],
    ["--tag", "nightly", "--yes"],
  ],
  apply: [
    ["-f", "FILE", "--yes"],
    ["-f", "FILE", "--dry-run"],
  ],
  offers: [["--gpu", "L4"]],
  cost: [[], ["--by", "label:team"], ["--csv"], ["--by", "job"]],
  advice: [[], ["-o", "wide"], ["-q"]],
  "idle ls": [[], ["-o", "wide"], ["-q"]],
  "idle end": [
    ["first", "--yes"],
    ["none", "--yes"],
  ],
  "budget show": [[]],
  "cron ls": [[], ["-o", "wide"]],
  "cron show": [["nightly-train"]],
  "cron next": [["nightly-train"]],
  "cron run": [["nightly-train"]],
  "cron pause": [["nightly-train"]],
  "cron resume": [["nightly-train"]],
  "cron rm": [
    ["report", "--yes"],
    ["none", "--yes"],
  ],
  "array ls": [[], ["-o", "wide"]],
  "array show": [["lr-sweep"]],
  "array wait": [["none"]],
  "array retry": [["lr-sweep"]],
  "array scale": [["lr-sweep", "3"]],
  "array cancel": [
    ["render", "--yes"],
    ["second", "--and-dependents", "--yes"],
  ],
  "array rm": [
    ["render", "--yes"],
    ["none", "--yes"],
  ],
  "connection ls": [[], ["-o", "wide"]],
  "connection add": [["github", "mine", "--username", "me", "--from-file", "FILE"]],
  "connection rotate": [["none", "--from-file", "FILE"]],
  "connection check": [["none"]],
  "connection rm": [["aws-prod", "--yes"]],
  "webhook ls": [[], ["-o", "wide"]],
  "webhook show": [["ci-server"], ["alarms"]],
  "webhook add": [
    ["more", "--url", "https://ci.example.com/more"],
    ["bad", "--url", "https://127.0.0.1/"],
  ],
  "webhook deliveries": [["ci-server"]],
  "webhook test": [["none"]],
  "webhook rotate": [["more"]],
  "webhook pause": [["more"]],
  "webhook enable": [["more"]],
  "webhook rm": [["more", "--yes"]],
  "machine ls": [[], ["-o", "wide"]],
  "machine show": [["workstation-1"]],
  "machine join": [["more"], ["more", "--again", "--systemd"]],
  "machine drain": [["workstation-1"], ["none"]],
  "machine remove": [["more", "--yes"]],
  "key ls": [[]],
  "key create": [["mine", "--role", "viewer"]],
  "key rm": [
    ["mine", "--yes"],
    ["none", "--yes"],
  ],
  "discover buckets": [[]],
  "discover images": [[]],
  "discover pools": [[]],
  check: [[]],
  version: [[]],
  skill: [[]],
}

/** Commands of a person. */
const BY_PERSON: Record<string, string[][]> = {
  "org ls": [[]],
  "org members": [["ORGANIZATION"]],
  "org create": [["Mine"]],
  "project ls": [[]],
  "budget show": [[]],
  "budget set": [["--monthly", "90"]],
  check: [[]],
}

/** Commands that print nothing of others, or print it by the commands above. */
const OTHERS = [
  "context ls",
  "context use",
  "context show",
  "context rm",
  "completion",
  "project use",
  "project create",
  "login",
  "smoke",
]

describe("a text of a user on a terminal", () => {
  const fixture = projectFixture("attack-terminal")
  let issuer: Issuer
  let replica: Replica
  let proxy: MarkingProxy
  let folder: string
  let idle: StoredLaunch

  beforeAll(async () => {
    issuer = await startIssuer()
    folder = await mkdtemp(join(tmpdir(), "berth-terminal-"))
    const discover: Discoverer = async (_sort, connections) => {
      const found = connections.map((connection) => ({ connection, resource: bucket("training-data") }))
      return { found, failures: connections.map((connection) => ({ connection, reason: "Denied", message: "no" })) }
    }
    replica = await startReplica({
      tokens: new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock }),
      market: { offers: shippedOffers(), launchAccounts: { of: () => [{ cloud: "gcp" }] } },
      settings: { defaultProject: fixture.project },
      discover,
    })
    const call = caller(() => replica, fixture)
    const sample = { fixture, replica, call }
    await fillProject(sample)
    await spend(sample)
    await measuredRuns(sample, "etl")
    for (const run of [1, 2, 3]) await measuredJob(sample, `fit-${run}`, { image: "fit", resources: { cpu: 8 } })
    await fixture.client.create(ORGANIZATIONS, {
      ...{ apiVersion: "berth.dev/v1alpha1", kind: "Organization", metadata: { name: fixture.organization } },
      spec: { displayName: "Acme", members: [{ userId: `${issuer.url}#ada`, role: "owner" }] },
    } as unknown as StoredOrganization)
    const image = "alpine"
    await call("/1/jobs", { body: { name: "first", image } })
    idle = await makeIdleVm(fixture.client, { namespace: fixture.namespace, name: "first" })
    const after = [{ job: "first" }]
    await call("/1/arrays", { body: { name: "second", size: 1, job_definition: { image }, after } })
    await call("/1/jobs", { body: { name: "third", image, after: [{ array: "second" }] } })
    const { id } = await recordIn(await call("/1/jobs/nightly-1"))
    // A log may draw a progress bar again.
    await writeLog(sample, id, `${MARK.before}first${MARK.after.replaceAll(/[\b\r]/g, "")}\nlast\n`)
    await writeFile(join(folder, "secret"), "name: applied\nimage: alpine\n")
    proxy = await startMarkingProxy(() => replica.port, MARK)
  })
  afterAll(async () => {
    await fixture.client.delete(LAUNCHES, idle.metadata)
    await proxy?.close()
    await replica?.close()
    await issuer?.close()
    await rm(folder, { recursive: true, force: true })
  })

  const argvOf = (commands: Record<string, string[][]>): string[][] =>
    Object.entries(commands).flatMap(([name, forms]) =>
      forms.map((form) => [
        ...name.split(" "),
        ...form.map((word) =>
          word === "FILE" ? join(folder, "secret") : word === "ORGANIZATION" ? fixture.organization : word,
        ),
      ]),
    )

  function onPty(commands: string[][], credential: Record<string, string>) {
    const script = join(import.meta.dirname, "all-commands.ts")
    const quoted = JSON.stringify(commands).replaceAll("'", "'\\''")
    return onTerminal(`stty cols 200; exec ${process.execPath} ${script} '${quoted}'`, {
      ...{ BERTH_URL: proxy.url, XDG_CONFIG_HOME: folder, XDG_STATE_HOME: folder },
      ...credential,
    })
  }

  const outputs = (output: string): string[] => output.split("\r\n@@ ").slice(1)

  it("has nothing but colors, whichever command prints it and whichever field has it", async () => {
    const commands = argvOf(BY_KEY)
    const { output } = await onPty(commands, { BERTH_API_KEY: fixture.keys.admin }).ended
    for (const printed of outputs(output)) expect.soft(controlsIn(printed), printed).toEqual([])
    expect(outputs(output)).toHaveLength(commands.length)
  })

  it("has nothing but colors in the commands of people", async () => {
    const commands = argvOf(BY_PERSON)
    const token = await issuer.token({ sub: "ada" })
    const { output } = await onPty(commands, { BERTH_TOKEN: token, BERTH_PROJECT: fixture.project }).ended
    for (const printed of outputs(output)) expect.soft(controlsIn(printed), printed).toEqual([])
    expect(outputs(output)).toHaveLength(commands.length)
  })

  it("has nothing but colors in lists that are drawn again, followed logs and questions", async () => {
    const key = { BERTH_API_KEY: fixture.keys.admin }
    const watching = onPty([["ps", "-a", "-w"]], key)
    await watching.shows("<hacked>")
    watching.type("\u0003")
    const using = onPty([["top"]], key)
    await using.shows("<hacked>")
    using.type("\u0003")
    const asking = onPty([["array", "cancel", "lr-sweep"]], key)
    await asking.shows("[y/N]")
    asking.type("n\n")
    for (const { output } of await Promise.all([watching.ended, using.ended, asking.ended]))
      expect.soft(controlsIn(output), output).toEqual([])
  })

  it("is tested with every command", async () => {
    const tested = [...Object.keys(BY_KEY), ...Object.keys(BY_PERSON), ...OTHERS]
    expect(new Set(tested)).toEqual(new Set(await commandsIn("")))
  })
})

/** Sequences of the command itself: colors, line ends, and those that draw a list or a prompt again. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: sequences begin with a control character
const OWN = /\u001b\[([0-9;]*m|[0-9]*[AGK]|0?J|\?7[lh])|\r+\n|\r(?=\u001b)/g
// biome-ignore lint/suspicious/noControlCharactersInRegex: what a terminal does not only show
const CONTROLS = /\u001b.{0,6}|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

function controlsIn(output: string): string[] {
  return output.replaceAll(OWN, "").match(CONTROLS) ?? []
}

/** Returns the names of all commands below one. */
async function commandsIn(path: string): Promise<string[]> {
  const { out } = await run([...path.split(" ").filter(Boolean), "--help"], {})
  const list = out.split("Commands:\n")[1]?.split("\n\n")[0] ?? ""
  const names = [...list.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = ""]) => name).filter((name) => name !== "help")
  if (names.length === 0) return [path]
  return (await Promise.all(names.map((name) => commandsIn(`${path} ${name}`.trim())))).flat()
}
