import { execFile } from "node:child_process"
import { generateKeyPairSync } from "node:crypto"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { exportJWK, generateKeyPair, SignJWT } from "jose"
import { load } from "js-yaml"
import { afterAll, beforeAll, expect, inject } from "vitest"
import { compileCache } from "../../dev/compile-cache.ts"
import { proxyEnvironment } from "../../src/agent/volumes/driver.ts"
import { isBound } from "../../src/core/apis/apikey.ts"
import { proxySettings } from "../../src/core/apis/proxy.ts"
import { declareKey } from "../../src/core/identity/key-manifest.ts"
import { renderUserData } from "../../src/core/protocol/messages.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { goProgram } from "../go-program.ts"
import { eventually } from "../harness/eventually.ts"
import { Program } from "../harness/program-process.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimProvider } from "../harness/sim-provider.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { RCLONE } from "../rclone.ts"
import { Berth } from "./berth.ts"
import { type ForwardProxy, isKnownHere, missingForProxy, startForwardProxy } from "./forward-proxy.ts"
import { type Front, forwarding, startFront } from "./front.ts"

/** All programs behind a real squid. Only squid knows the names, and only by the proxy's setting a program can reach them. */

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")
/** Address of this machine at which only squid finds the names. */
const ADDRESS = "127.9.8.7"
const PROGRAMS = ["operator", "facade", "cli", "agent", "rclone"]
const PROVIDERS = ["oauth2.googleapis.com", "login.microsoftonline.com", "hub.docker.com", "api.github.com"]
const { value: key, manifest } = declareKey({ name: "ci", role: "admin", namespace: "team" })

let folder: string
let berth: Berth
let moto: Moto
let proxy: ForwardProxy
let front: Front
let facadePort = 0
let issuerKeys: Awaited<ReturnType<typeof generateKeyPair>>
const programs: Program[] = []

function manifestOf(kind: string, name: string, spec: object) {
  return { apiVersion: "berth.dev/v1alpha1", kind, metadata: { name, namespace: "team" }, spec }
}

/** Applies objects as the administrator. */
async function apply(...items: object[]): Promise<void> {
  const kubectl = [inject("kubectlPath"), "--kubeconfig", berth.controlPlane.kubeconfigPath]
  const running = run("env", [...kubectl, "apply", "--server-side", "-f", "-"])
  running.child.stdin?.end(JSON.stringify({ apiVersion: "v1", kind: "List", items }))
  await running
}

function connection(type: string, stringData: object): object[] {
  const metadata = { name: type, namespace: "team" }
  const spec = { type, credentialsSecretRef: { name: type } }
  return [
    { apiVersion: "v1", kind: "Secret", metadata, type: "berth.dev/connection", stringData },
    manifestOf("Connection", type, spec),
  ]
}

/** Environment of a program, with the proxy as an operator sets it. */
function environment(program: string, more: Record<string, string> = {}): Record<string, string> {
  const url = proxy.urlFor(program)
  return {
    ...{ PATH: process.env["PATH"] ?? "", HOME: folder, HTTP_PROXY: url, HTTPS_PROXY: url },
    ...compileCache(),
    NODE_EXTRA_CA_CERTS: join(folder, "ca.pem"),
    ...more,
  }
}

function start(name: string, args: string[], more: Record<string, string> = {}): Program {
  const program = new Program(name, [join(ROOT, "src/main.ts"), name, ...args], environment(name, more))
  programs.push(program)
  return program
}

/** Sends a request to the façade itself. */
async function posted(path: string, body: object): Promise<void> {
  const headers = { "x-service-api-key": key, "content-type": "application/json" }
  const url = `http://127.0.0.1:${facadePort}/projects/team/1${path}`
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) })
  expect(answer.status, await answer.text()).toBeLessThan(300)
}

async function expectRequests(program: string, ...targets: string[]): Promise<void> {
  await eventually(async () => expect(await proxy.requestsOf(program)).toEqual(expect.arrayContaining(targets)))
}

const issuer = {
  "/.well-known/openid-configuration": () => ({
    issuer: "https://issuer.example.com",
    jwks_uri: "https://issuer.example.com/keys",
  }),
  "/keys": async () => ({ keys: [{ ...(await exportJWK(issuerKeys.publicKey)), alg: "ES256", kid: "1" }] }),
}

beforeAll(async () => {
  if (missingForProxy() !== undefined) return
  folder = await mkdtemp(join(tmpdir(), "berth-proxy-"))
  issuerKeys = await generateKeyPair("ES256")
  moto = await startMoto()
  front = await startFront(ADDRESS, {
    "berth.example.com": forwarding(() => `http://127.0.0.1:${facadePort}`),
    "issuer.example.com": async (req, res) => {
      const answer = issuer[req.url as keyof typeof issuer]
      res.setHeader("content-type", "application/json").end(JSON.stringify(await answer?.()))
    },
    "hooks.example.com": (_req, res) => void res.end("thanks"),
    "registry.example.com": undefined,
    "bucket.example.com": forwarding(() => moto.url, "127.0.0.1"),
    ...Object.fromEntries(PROVIDERS.map((host) => [host, undefined])),
  })
  await writeFile(join(folder, "ca.pem"), front.authority.certificate)
  const names = ["berth", "issuer", "hooks", "registry", "bucket"].map((name) => `${name}.example.com`)
  const hosts = Object.fromEntries([...names, ...PROVIDERS].map((name) => [name, ADDRESS]))
  proxy = await startForwardProxy({ ...hosts, "moto.example.com": "127.0.0.1" }, PROGRAMS)
  const clock = new ShiftedClock()
  const around = { clock, provider: new SimProvider(clock), logsDir: join(folder, "logs") }
  berth = await Berth.start(join(folder, "cluster"), around)
  await berth.install()
})
afterAll(async () => {
  await Promise.all(programs.filter(({ running }) => running).map((program) => program.stop()))
  await berth?.stop()
  await proxy?.stop()
  await front?.close()
  await moto?.stop()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
})

const { it } = needing(missingForProxy() ?? missingTool("moto", "rclone"))

it("each program reaches everything through the proxy, and the API server without it", async () => {
  for (const name of ["berth.example.com", "moto.example.com"]) expect(isKnownHere(name)).toBe(false)
  const endpoint = `http://moto.example.com:${new URL(moto.url).port}`
  const aws = { AWS_ENDPOINT_URL: endpoint, AWS_ACCESS_KEY_ID: "AKIAIOSFODNN7EXAMPLE", AWS_SECRET_ACCESS_KEY: "s" }
  const made = await fetch(`${moto.url}/logs`, { method: "PUT" })
  expect(made.status).toBe(200)
  const kubeconfig = ["--kubeconfig", berth.controlPlane.kubeconfigPath]
  const images = ["--agent-image", "registry.example.com/agent:1", "--volumes-image", "registry.example.com/volumes:1"]
  start("operator", [...kubeconfig, "--gateway-url", "https://berth.example.com", ...images], aws)
  const where = [
    "--port",
    "0",
    "--base-domain",
    "berth.example.com",
    "--logs-bucket",
    "logs",
    "--logs-region",
    "us-east-1",
  ]
  const signIn = ["--oidc-issuer", "https://issuer.example.com", "--oidc-audience", "berth"]
  const facade = start("facade", [...kubeconfig, ...where, "--logs-endpoint", endpoint, ...signIn], aws)
  const [, port] = await facade.printed(/"url":"http:\/\/127\.0\.0\.1:(\d+)"/)
  facadePort = Number(port)

  await apply(
    { apiVersion: "berth.dev/v1alpha1", kind: "Organization", metadata: { name: "acme" }, spec: { displayName: "A" } },
    {
      ...{ apiVersion: "berth.dev/v1alpha1", kind: "Project", metadata: { name: "team" } },
      spec: { displayName: "Team", organization: "acme" },
    },
  )
  await eventually(() => berth.client.request({ method: "GET", path: "/api/v1/namespaces/team" }))
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
  const file = {
    ...{ type: "service_account", project_id: "p", client_email: "a@b.iam.gserviceaccount.com", private_key_id: "1" },
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
  }
  const uuid = "5cbd7f6e-93a4-4b0c-8a55-1f0e3a8e0a10"
  await apply(
    ...connection("aws", { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "secret-of-aws" }),
    ...connection("gcp", { gcp_project_id: "p", keyfile_json: JSON.stringify(file) }),
    ...connection("azure", { tenant_id: uuid, client_id: uuid, client_secret: "of-azure", subscription_id: uuid }),
    ...connection("dockerhub", { username: "u", token: "of-docker-hub" }),
    ...connection("github", { username: "u", token: "of-github" }),
    load(manifest) as object,
    manifestOf("Job", "asked", { image: "registry.example.com/job:1" }),
  )
  await eventually(async () =>
    expect(isBound(await berth.client.get(API_KEYS, { namespace: "team", name: "ci" }))).toBe(true),
  )

  await posted("/webhooks", { name: "hook", url: "https://hooks.example.com/events", events: ["job.*"] })

  const providers = PROVIDERS.map((host) => `${host}:443`)
  await expectRequests("operator", `${endpoint}/`, ...providers, "registry.example.com:443", "berth.example.com:443")

  const cli = await run(process.execPath, [join(ROOT, "src/cli/main.ts"), "ps", "--json"], {
    env: environment("cli", { BERTH_URL: "https://berth.example.com", BERTH_PROJECT: "team", BERTH_API_KEY: key }),
  })
  expect(JSON.stringify(JSON.parse(cli.stdout))).toContain("asked")
  await expectRequests("cli", "berth.example.com:443")

  await run(process.execPath, [join(ROOT, "src/cli/main.ts"), "cancel", "asked"], {
    env: environment("cli", { BERTH_URL: "https://berth.example.com", BERTH_PROJECT: "team", BERTH_API_KEY: key }),
  })
  await expectRequests("operator", "hooks.example.com:443")
  expect(front.requests).toContain("hooks.example.com /events")
  await posted("/webhooks/hook/test", {})
  await expectRequests("facade", "hooks.example.com:443")

  const token = await new SignJWT({ email: "a@example.com" })
    .setProtectedHeader({ alg: "ES256", kid: "1" })
    .setIssuer("https://issuer.example.com")
    .setAudience("berth")
    .setSubject("ada")
    .setExpirationTime("1h")
    .sign(issuerKeys.privateKey)
  const who = await fetch(`http://127.0.0.1:${facadePort}/1/whoami`, {
    headers: { authorization: `Bearer ${token}`, host: "berth.example.com" },
  })
  // The token is accepted, and its owner has no role here.
  expect([who.status, await who.text()]).toEqual([404, expect.stringContaining("You have no role")])
  await expectRequests("facade", "issuer.example.com:443")
  expect((await proxy.requestsOf("facade")).some((target) => target.startsWith(`${endpoint}/logs`))).toBe(true)

  const settings = proxySettings({ HTTPS_PROXY: proxy.urlFor("rclone") })
  const variables = proxyEnvironment(settings, folder).map((line) => line.split("=", 2))
  const flags = ["--s3-provider", "Other", "--s3-endpoint", "https://bucket.example.com", "--config", "/dev/null"]
  const keys = ["--s3-access-key-id", "AKIAIOSFODNN7EXAMPLE", "--s3-secret-access-key", "s"]
  const buckets = await run(await goProgram(RCLONE), ["lsd", ":s3:", ...flags, ...keys], {
    env: { PATH: process.env["PATH"], HOME: folder, ...Object.fromEntries(variables) },
  })
  expect(buckets.stdout).toMatch(/ logs$/m)
  await expectRequests("rclone", "bucket.example.com:443")

  await mkdir(join(folder, "vm"))
  const boot = {
    launch: `${uuid}-1`,
    gatewayUrl: "https://berth.example.com",
    bootstrapToken: "t",
    lifetimeSeconds: 60,
  }
  const userData = renderUserData({ ...boot, gatewayCa: front.authority.certificate })
  await writeFile(join(folder, "vm", "user-data.json"), userData)
  start("agent", ["--data-dir", join(folder, "vm"), "--runtime", "process"], { NODE_EXTRA_CA_CERTS: "" })
  await expectRequests("agent", "berth.example.com:443")
  await eventually(() => expect(front.requests).toContain(`berth.example.com /agent/v1/launches/${uuid}-1/register`))
})
