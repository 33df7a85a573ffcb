import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises"
import { tmpdir } from "node:os"
import { extname, join } from "node:path"
import { promisify } from "node:util"
import { build } from "esbuild"
import { load } from "js-yaml"
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest"
import { installKinds } from "../../dev/install.ts"
import { type Bundled, bundle, IN_PARTS, namedImports, sbomOf } from "../../scripts/bundle.ts"
import type { openAws } from "../../src/clouds/aws/aws.ts"
import type { openAzure } from "../../src/clouds/azure/azure.ts"
import type { Cloud } from "../../src/clouds/cloud.ts"
import type { openGcp } from "../../src/clouds/gcp/gcp.ts"
import { connect } from "../../src/connect.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { ArmServer } from "../cloud/arm-server.ts"
import { GceServer } from "../cloud/gce-server.ts"
import { kubeconfigPath, testNamespace } from "../control-plane.ts"
import { Program } from "../harness/program-process.ts"
import { startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const motoNeeded = needing(missingTool("moto"))

const ROOT = join(import.meta.dirname, "..", "..")

/** Folder below the system's temporary files: no parent has a node_modules. */
let folder: string
let program: string
let bundled: Bundled

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-bundle-"))
  program = join(folder, "dist", "berth.mjs")
  bundled = await bundle(join(folder, "dist"))
})
afterAll(() => rm(folder, { recursive: true }))

async function berth(...args: string[]): Promise<string> {
  return (await promisify(execFile)(process.execPath, [program, ...args], { cwd: folder })).stdout
}

describe("the bundle", () => {
  const namespace = testNamespace("bundle")
  beforeAll(async () => {
    const client = connect({ kubeconfig: kubeconfigPath() })
    await installKinds(client, AbortSignal.timeout(60_000))
    await client.close()
  })

  it("prints its version and the options of each command", async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
    expect((await berth("--version")).trim()).toBe(version)
    expect(await berth("operator", "--help")).toContain("--gateway-url")
  })

  it("has only ASCII characters, which V8 holds with one byte each", async () => {
    const dist = join(folder, "dist")
    const files = (await readdir(dist, { recursive: true })).filter((file) => file.endsWith(".mjs"))
    expect(files.length).toBeGreaterThan(20)
    for (const file of files.map((name) => join(dist, name))) {
      expect(/[\u0080-\uffff]/.exec(await readFile(file, "utf8"))?.[0], file).toBeUndefined()
    }
  })

  it.each([
    ['const { default: sdk } = await import("a")', []],
    ['const { default: sdk, S3 } = await import("a")', ["S3"]],
    ['const { S3: Client } = await import("a")', ["S3: Client"]],
    ['const [{ default: a }, { Vms }] = await Promise.all([\n  import("a"),\n  import("b"),\n])', ["Vms"]],
    ["const { answers } = await Promise.all([asked()])", []],
  ])("finds the names that are missing in a CommonJS part: %s", (source, names) => {
    expect(namedImports(source)).toEqual(names)
  })

  it("makes an installation key", async () => {
    expect(load(await berth("key", "--name", "build", "--role", "viewer"))).toMatchObject({
      kind: "ApiKey",
      spec: { role: "viewer" },
    })
  })

  it("runs the façade with the price list, and the control loops", async () => {
    // A namespace of its own, or it would act on the jobs of all other suites.
    const watched = ["--watch-namespace", namespace]
    const cluster = ["--kubeconfig", kubeconfigPath(), "--system-namespace", namespace, ...watched]
    const logs = ["--logs-dir", join(folder, "logs")]
    const facade = new Program("façade", [program, "facade", "--port", "0", ...cluster, ...logs])
    const parts = [
      "--gateway-url",
      "http://127.0.0.1:1",
      "--agent-image",
      "berth",
      "--volumes-image",
      "berth",
      "--metrics-port",
      "0",
    ]
    const operator = new Program("operator", [program, "operator", ...cluster, ...parts])
    try {
      const [, url] = await facade.printed(/"url":"([^"]+)"/)
      expect((await fetch(`${url}/livez`)).status).toBe(200)
      expect(await (await fetch(`${url}/1/openapi.json`)).json()).toMatchObject({ openapi: /^3/ })
      const page = await (await fetch(`${url}/1/docs`)).text()
      for (const [, asset] of page.matchAll(/"(\/1\/docs\/[^"]+)"/g))
        expect((await fetch(`${url}${asset}`)).status, asset).toBe(200)
      const files = [...(await (await fetch(`${url}/console/`)).text()).matchAll(/"(\/console\/assets\/[^"]+)"/g)]
      // The scripts of the first load, and the style.
      expect(files.map(([, file = ""]) => extname(file)).sort()).toEqual([".css", ".js", ".js", ".js", ".js"])
      for (const [, file] of files) expect((await fetch(`${url}${file}`)).status, file).toBe(200)
      await operator.printed(/"msg":"leading"/)
    } finally {
      const endings = await Promise.all([facade.stop(), operator.stop()])
      expect(endings, facade.output + operator.output).toEqual([ENDED, ENDED])
    }
  })

  it("has the agent as a separate file, without modules that only other commands load", async () => {
    const agent = join(folder, "dist", "agent.mjs")
    const { stdout } = await promisify(execFile)(process.execPath, [agent, "agent", "--help"], { cwd: folder })
    expect(stdout).toContain("--data-dir")
    expect((await stat(agent)).size).toBeLessThan(5_000_000)
  })

  it("contains the licences of the packages in it", async () => {
    const text = await readFile(join(folder, "dist", "THIRD-PARTY-LICENCES.txt"), "utf8")
    for (const name of ["undici", "@aws-sdk/client-ec2", "@google-cloud/compute", "swagger-ui-dist", "preact"]) {
      expect(text).toMatch(new RegExp(`^${name} \\d.*\\((MIT|Apache-2.0)\\)$`, "m"))
    }
    expect(text).toContain("Permission is hereby granted, free of charge")
  })

  it("lists exactly the packages that are in it", async () => {
    const { packages, relationships } = await sbomOf(bundled.packages)
    const text = await readFile(join(folder, "dist", "THIRD-PARTY-LICENCES.txt"), "utf8")
    const licensed = [...text.matchAll(/^(\S+) (\d\S+) \(.+\)$/gm)].map(([, name, version]) => `${name}@${version}`)
    const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
    const listed = packages.map(({ name, versionInfo }) => `${name}@${versionInfo}`)
    expect(listed.sort()).toEqual([...licensed, `berth@${version}`].sort())
    expect(listed.filter((id) => /^(undici|oidc-provider|vitest|esbuild)@/.test(id))).toEqual([
      expect.stringMatching(/^undici@/),
    ])
    const ids = new Set(["SPDXRef-DOCUMENT", ...packages.map(({ SPDXID }) => SPDXID)])
    expect(relationships.length).toBeGreaterThan(packages.length / 2)
    for (const { spdxElementId, relatedSpdxElement } of relationships)
      expect([ids.has(spdxElementId), ids.has(relatedSpdxElement)]).toEqual([true, true])
  })
})

const ENDED = { code: 0, signal: null }

/** SDKs that read files beside their modules, or compute modules' names, fail only when they are used. */
describe("clouds in a bundle", () => {
  let clouds: { openAws: typeof openAws; openGcp: typeof openGcp; openAzure: typeof openAzure }

  beforeAll(async () => {
    const outdir = join(folder, "clouds")
    const modules = { openAws: "./aws/aws.ts", openGcp: "./gcp/gcp.ts", openAzure: "./azure/azure.ts" }
    const contents = Object.entries(modules)
      .map(([name, from]) => `export { ${name} } from "${from}"\n`)
      .join("")
    await build({ ...IN_PARTS, stdin: { contents, resolveDir: join(ROOT, "src", "clouds") }, outdir })
    clouds = (await import(join(outdir, "stdin.mjs"))) as typeof clouds
  })

  type Where = Pick<Offer, "cloud" | "region" | "instanceType">

  async function launchAndEnd(cloud: Cloud, offer: Where, imageId?: string): Promise<void> {
    const vm = await cloud.launch({
      name: `${randomUUID()}-1`,
      installation: "i",
      tags: {},
      offer: { ...OFFER, ...offer },
      ...(imageId !== undefined && { imageId }),
      userData: "#cloud-config\n{}",
      lifetimeSeconds: 3600,
    })
    expect(await cloud.list({ installation: "i", region: offer.region })).toMatchObject([{ id: vm.id }])
    await cloud.terminate(vm)
  }

  motoNeeded.it("create a VM on AWS, find it and delete it", async () => {
    const moto = await startMoto()
    onTestFinished(() => moto.stop())
    vi.stubEnv("AWS_ENDPOINT_URL", moto.url)
    onTestFinished(() => void vi.unstubAllEnvs())
    const cloud = clouds.openAws({ clock: systemClock })(
      { access_key_id: "AKIAEXAMPLE", secret_access_key: "secret" },
      "eu-west-1",
    )
    const where = { cloud: "aws", region: "eu-west-1", instanceType: "t3.small" }
    await launchAndEnd(cloud, where, "ami-0123456789abcdef0")
  })

  it("create a VM on Google Cloud, find it and delete it", async () => {
    await using server = await started(new GceServer({ project: "p", regions: { "us-central1": ["us-central1-a"] } }))
    const open = clouds.openGcp({ send: server.send, settings: { network: "jobs" } })
    const cloud = open({ gcp_project_id: "p", keyfile_json: server.keyfile }, "us-central1")
    await launchAndEnd(cloud, { cloud: "gcp", region: "us-central1", instanceType: "e2-standard-2" })
    expect(server.violations).toEqual([])
  })

  it("create a VM on Azure, find it and delete it", async () => {
    await using server = await started(new ArmServer())
    const open = clouds.openAzure({ send: server.send, settleSeconds: 30, lookSeconds: 0.02 })
    const cloud = open(server.credentials, "westeurope")
    await launchAndEnd(cloud, { cloud: "azure", region: "westeurope", instanceType: "Standard_D2s_v5" })
    expect(server.violations).toEqual([])
  })
})

const OFFER = {
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.1,
  minimumBilledSeconds: 60,
} as const

async function started<Server extends { start(): Promise<unknown>; close(): Promise<void> }>(
  server: Server,
): Promise<Server & AsyncDisposable> {
  await server.start()
  return Object.assign(server, { [Symbol.asyncDispose]: () => server.close() })
}
