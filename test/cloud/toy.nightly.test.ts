import { readFile, rm } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest"
import type { SimulatedCloud } from "../../bench/simulated-cloud.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { browserNeeded, collectFaults, launchBrowser } from "../browser.ts"
import { goTo } from "../console/browser.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { compile, copyWithToy, makeFolder, runIn } from "./toy-copy.ts"

const PROJECT = "default"
const KEY = "the-key-of-the-toys"
/** Name of the type, which only the copy's types have. */
const TYPE = "toy" as never

type Document = Record<"components" | "paths", Record<string, object>>

/** A whole installation from a copy of the source, with one folder and one line more. Its control plane has the copy's kinds. */
describe("a cloud that is one folder and one line", () => {
  const closing: (() => Promise<unknown>)[] = []
  let root: string
  let cloud: SimulatedCloud
  let toyLaunches: () => Promise<{ spec: object }[]>
  let url: string
  let key: string

  /** Imports a module of the copy. */
  const from = <Module>(path: string) => import(join(root, path)) as Promise<Module>
  const berth = (argv: string[], input = "") =>
    runIn(root, ["src/cli/main.ts", ...argv], { env: { BERTH_URL: url, BERTH_API_KEY: key }, input })

  beforeAll(async () => {
    const starting = startPrivateControlPlane()
    closing.push(async () => (await starting).stop())
    root = await makeFolder()
    closing.push(() => rm(root, { recursive: true, force: true }))
    await copyWithToy(root)
    await runIn(root, ["scripts/console.ts"])
    const { kubeconfigPath } = await starting
    const { SimulatedCloud: Simulated } =
      await from<typeof import("../../bench/simulated-cloud.ts")>("bench/simulated-cloud.ts")
    cloud = await Simulated.start()
    closing.push(() => cloud.stop())
    ;({ url, key } = await startInstallation(kubeconfigPath))
    await berth(["connection", "add", "toy", "main", "--toy-account", cloud.url, "--from-file", "-"], KEY)
    expect(await berth(["connection", "check", "main"])).toContain("Passed")
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })

  /** Starts operator and façade of the copy, with their rights, and makes a project. Returns address and key. */
  async function startInstallation(kubeconfigPath: string): Promise<{ url: string; key: string }> {
    const { connect } = await from<typeof import("../../src/connect.ts")>("src/connect.ts")
    const { installBase } = await from<typeof import("../../dev/base.ts")>("dev/base.ts")
    const { installApiKey, installDefaults, untilProject } =
      await from<typeof import("../../dev/install.ts")>("dev/install.ts")
    const { whenReady } = await from<typeof import("../../dev/rest.ts")>("dev/rest.ts")
    const { VM_CLOUDS } = await from<typeof import("../../src/clouds/definitions.ts")>("src/clouds/definitions.ts")
    const { loadProviders } = await from<typeof import("../../src/clouds/registry.ts")>("src/clouds/registry.ts")
    const { fixedOffers } = await from<typeof import("../../src/market/catalogue/offers.ts")>(
      "src/market/catalogue/offers.ts",
    )
    const { Programs } = await from<typeof import("../harness/programs.ts")>("test/harness/programs.ts")
    const { programClient } = await from<typeof import("../harness/program-client.ts")>(
      "test/harness/program-client.ts",
    )
    const signal = AbortSignal.timeout(120_000)
    const admin = connect({ kubeconfig: kubeconfigPath })
    closing.push(() => admin.close())
    const machine = { instanceType: "t1", architecture: "amd64", cpu: 2, memoryGib: 8 } as const
    const offer = { cloud: "toy", region: "toyland", ...machine, minimumBilledSeconds: 60 } as const
    const programs = new Programs({
      systemNamespace: SYSTEM_NAMESPACE,
      clientOf: (name) => programClient(name, { admin, kubeconfigPath }),
      market: {
        offers: fixedOffers([
          { ...offer, provisioning: "onDemand", hourlyPriceUsd: 0.02 },
          { ...offer, provisioning: "spot", hourlyPriceUsd: 0.01 },
        ]),
        providers: await loadProviders(),
      },
    })
    closing.push(() => programs.stop())
    await installBase(admin, signal)
    await installDefaults(admin)
    const facade = await programs.startFacade(
      { logsDir: join(root, "logs"), defaultProject: PROJECT },
      { clouds: VM_CLOUDS, consoleFolder: join(root, "dist", "console") },
    )
    await programs.startOperator({ gatewayUrl: facade.url })
    await untilProject(admin, signal)
    const apiKey = await installApiKey(admin, undefined, signal)
    await whenReady(facade.url, 60, signal)
    toyLaunches = async () => (await admin.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE })).items
    return { url: facade.url, key: apiKey }
  }

  const rest = async (path: string, body?: object): Promise<Record<string, unknown>> => {
    const headers = { "X-Service-Api-Key": key, "Content-Type": "application/json" }
    const answer = await fetch(`${url}/1${path}`, {
      headers,
      ...(body && { method: "POST", body: JSON.stringify(body) }),
    })
    return (await answer.json()) as Record<string, unknown>
  }

  it("compiles, and keeps the rules for imports", async () => {
    await expect(compile(root)).resolves.toBeUndefined()
    await expect(runIn(root, ["scripts/imports.ts"])).resolves.toBe("")
  })

  it("is a type of the kind Connection, with rules for its settings", async () => {
    const { crdObjects } = await from<typeof import("../../src/core/apis/crd.ts")>("src/core/apis/crd.ts")
    const connection = JSON.stringify(crdObjects().find(({ metadata }) => metadata.name.startsWith("connections.")))
    expect(connection).toContain('"github","nebius","toy"]')
    expect(connection).toContain("network must be the id of a network, such as net-1")
  })

  it("has its own bodies in the document of the REST API, and can be named by jobs", async () => {
    const { components, paths } = JSON.parse(await (await fetch(`${url}/1/openapi.json`)).text()) as Document
    expect(components["schemas"]).toHaveProperty("ToyConnectionCreation.properties.toy_key")
    expect(JSON.stringify(paths["/offers"])).toContain('["aws","gcp","azure","nebius","toy"]')
  })

  it("has checked credentials and settings, and secrets that no log shows", async () => {
    const { credentialErrors, SECRET_FIELDS } =
      await from<typeof import("../../src/core/apis/credentials.ts")>("src/core/apis/credentials.ts")
    const { vmSettingErrors } =
      await from<typeof import("../../src/core/apis/vm-settings.ts")>("src/core/apis/vm-settings.ts")
    expect(credentialErrors(TYPE, { toy_account: "a", toy_key: "k" })).toEqual([])
    expect(credentialErrors(TYPE, { toy_account: "a" })).toMatchObject([{ pointer: "/toy_key" }])
    expect(vmSettingErrors("toy", { network: "net-1", disk: { type: "brick" } })).toEqual([])
    expect(vmSettingErrors("toy", { network: "vpc-1" })).toMatchObject([{ pointer: "/network" }])
    expect(SECRET_FIELDS).toContain("toy_key")
    expect(SECRET_FIELDS).not.toContain("toy_account")
  })

  it("has machines, disks and prices for the router", async () => {
    const { bootDeadlineOf, LONGEST_BOOT_SECONDS, quotaOf } = await from<
      typeof import("../../src/clouds/machines/machines.ts")
    >("src/clouds/machines/machines.ts")
    const { largestDiskGib } =
      await from<typeof import("../../src/clouds/machines/disk.ts")>("src/clouds/machines/disk.ts")
    const { partPrices } = await from<typeof import("../../src/market/catalogue/parts.ts")>(
      "src/market/catalogue/parts.ts",
    )
    const { egressUsd } = await from<typeof import("../../src/market/router/egress.ts")>("src/market/router/egress.ts")
    const machine = { cloud: "toy", instanceType: "t1", architecture: "amd64", cpu: 1 } as const
    expect(bootDeadlineOf(machine)?.seconds).toBe(5000)
    expect(LONGEST_BOOT_SECONDS).toBe(5000)
    expect(quotaOf("toy", "t1")).toBe("all toys")
    expect(largestDiskGib("toy")).toBe(16_384)
    const region = { cloud: "toy", name: "toyland", groups: ["eu"] } as never
    const disk = { type: "brick", sizeGib: 1000 }
    expect(partPrices().diskUsd(region, disk, false)).toBeCloseTo(1)
    expect(partPrices().addressUsd(region, "spot")).toBe(0.01)
    const bucket = { cloud: "toy", region: "toyland", gib: 10 }
    expect(egressUsd(bucket, { cloud: "local", region: "here" })).toBe(5)
  })

  it("is in the generated files of command line and console", async () => {
    const providers = await readFile(join(root, "src", "client", "providers.ts"), "utf8")
    expect(providers).toContain('"label": "Toy Cloud"')
    expect(providers).toContain('"flag": "--toy-account <id>"')
    expect(await readFile(join(root, "src", "client", "schema.d.ts"), "utf8")).toContain('type: "toy"')
  })

  it("runs a job over REST, with the machine and the boot time of its definition", async () => {
    const body = { name: "rest", image: "alpine", command: ["sleep", "1"], cloud: ["toy"], provisioning: "spot" }
    expect(await rest("/jobs", body)).toMatchObject({ name: "rest" })
    await eventually(async () => expect(await rest("/jobs/rest")).toMatchObject({ status: "succeeded" }))
    const specs = (await toyLaunches()).map(({ spec }) => spec)
    expect(specs).toContainEqual(
      expect.objectContaining({
        bootDeadlineSeconds: 5000,
        job: expect.objectContaining({ name: "rest" }),
        offer: expect.objectContaining({ cloud: "toy", instanceType: "t1", provisioning: "spot" }),
      }),
    )
    await eventually(() => expect(cloud.size).toBe(0))
  })

  it("has its flag, its type and its name in the command line, which runs a job on it", async () => {
    const help = await berth(["connection", "add", "--help"])
    expect(help).toContain("--toy-account <id>")
    expect(help).toContain("account (toy)")
    expect(await berth(["__complete", "--", "connection", "add", "t"])).toBe("toy\n")
    expect(await berth(["__complete", "--", "run", "--cloud", "t"])).toBe("toy\n")
    const job = ["--cloud", "toy", "--image", "alpine", "--entrypoint", "sleep", "--name", "cli"]
    expect(await berth(["run", ...job, "--yes", "--", "1"])).toBe("done\n")
    expect(await rest("/jobs/cli")).toMatchObject({ status: "succeeded" })
  })

  browserNeeded.it("has its form in the console, which runs a job on it", async () => {
    const browser = await launchBrowser()
    onTestFinished(() => browser.close())
    const page = await browser.newPage()
    const faults = collectFaults(page, [`${url}/`, "data:", "blob:"])
    await page.goto(`${url}/console/projects/${PROJECT}/connections`)
    await page.getByLabel("API key", { exact: true }).fill(key)
    await page.getByRole("form").getByRole("button", { name: "Sign in" }).click()
    await page.getByRole("button", { name: "New connection" }).click()
    const form = page.getByRole("form", { name: "New connection" })
    await form.getByLabel("Account at").selectOption({ label: "Toy Cloud" })
    await form.getByLabel("Name of the connection").fill("second")
    await form.getByLabel("Account", { exact: true }).fill(cloud.url)
    const secret = form.getByLabel("Key", { exact: true })
    expect(await secret.getAttribute("type")).toBe("password")
    await secret.fill(KEY)
    await form.getByRole("button", { name: "Add the connection" }).click()
    await page.getByRole("heading", { name: "second toy" }).waitFor()

    await goTo(page, { project: PROJECT }, "/new")
    await page.getByText(/\btoy\. Empty: any\./).waitFor()
    await page.getByLabel("Image").fill("alpine")
    await page.getByLabel("Name", { exact: true }).fill("console")
    await page.getByLabel("Command").fill("sleep 1")
    await page.getByLabel("Clouds").fill("toy")
    await page.getByRole("complementary", { name: "Plan" }).getByText("toyland").first().waitFor()
    await page.getByRole("button", { name: "Submit the job" }).click()
    await page.getByRole("heading", { name: "console" }).waitFor()
    await page.locator(".state .status.succeeded").waitFor()
    expect(faults).toEqual([])
  })
})
