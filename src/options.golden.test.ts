import { afterEach, beforeEach, expect, it, vi } from "vitest"
import { joinToken } from "./core/protocol/machines.ts"
import { readInvocation } from "./options.ts"

const COMMANDS = ["operator", "facade", "agent", "host", "key", "login", "smoke", "rotate-sealing-key"]

/** Arguments that each command requires. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {
  operator: ["--gateway-url", "https://gateway.test/", "--agent-image", "berth:1", "--volumes-image", "berth:2"],
  facade: [],
  agent: ["--data-dir", "/var/lib/berth"],
  host: ["--gateway", "https://berth.test/", "--data-dir", "/var/lib/berth/machine"],
  key: ["--name", "ci", "--role", "viewer"],
  login: ["--issuer", "https://issuer.test"],
  smoke: ["--url", "https://one.berth.test", "--api-key", "k", "--cloud", "aws"],
  "rotate-sealing-key": [],
}

const SIGN_IN = ["--oidc-issuer", "https://issuer.test", "--oidc-audience", "berth"]

const JOIN_TOKEN = joinToken(new Uint8Array(32), { namespace: "one", name: "gpu-1", uid: "u", number: 1, expires: 1 })

/** Good and bad arguments, by command. */
const ARGUMENTS: readonly (readonly string[])[] = [
  ...COMMANDS.map((command) => [command]),
  ["operator", "--kubeconfig", "a/kubeconfig", "--system-namespace", "", "--watch-namespace", "one"],
  ...["0", "9090", "65535", "65536", "-1", "0x10", "", " 80"].map((text) => ["operator", `--metrics-port=${text}`]),
  ["operator", "--metrics-host", ""],
  ...["https://a.test//", "http://a.test", "a.test"].map((text) => ["operator", "--identity-issuer", text]),
  ...['{"unfinishedJobs":5}', "{}", '{"unfinishedJobs":0}', '{"jobs":1}', "5", "{"].map((text) => [
    "facade",
    "--project-limits",
    text,
  ]),
  ...['{"maxMonthlyUsd":5000}', '{"maxMonthlyUsd":-1,"onExceeded":"stop"}', '{"max":1}', "no"].map((text) => [
    "facade",
    "--caps",
    text,
  ]),
  ...["Hooks.corp.example.com, *.corp.example.com,10.0.0.0/8,fd00::/8,10.1.1.1,::1", "a_b", "10.0.0.0/33", ""].map(
    (text) => ["operator", "--private-receivers", text],
  ),
  ["operator", "--log-level", "debug"],
  ["operator", "--log-level", "loud"],
  ...["http://gateway.test", "ftp://gateway.test", "gateway", ""].map((text) => ["operator", "--gateway-url", text]),
  ...['{"url":"http://proxy.test:3128"}', '{"url":"http://ada:s3cret@proxy.test"}', "http://s3cret", "", "null"].map(
    (text) => ["operator", "--vm-proxy", text],
  ),
  ["operator", "--vm-ca", "/nowhere/ca.pem"],
  ["operator", "--vm-ca", "package.json"],
  ...[
    '{"eu-central-1":{"subnetIds":["subnet-0a"]}}',
    '{"europe-west1":{},"x":{}}',
    '{"eu-central-1":{"subnetIds":[]}}',
    "[]",
  ].map((text) => ["operator", "--aws-networks", text]),
  ...['{"europe-west1":{"network":"yard"}}', '{"eu-central-1":{}}', '{"europe-west1":{"network":"Yard"}}', "{"].map(
    (text) => ["operator", "--gcp-networks", text],
  ),
  ...["0", "9999", "10000", "1.5", "", "-1"].map((text) => ["operator", `--price-refresh-hours=${text}`]),
  ["operator", "--spot-price-refresh-hours", "never"],
  ["operator", "--unknown"],
  ["operator", "extra"],
  ["facade", "--host", "", "--port", "0", "--base-domain", "berth.test", "--default-project", "one"],
  ["facade", "--port", "http"],
  ...["true", "false", "yes", ""].map((text) => ["facade", "--project-hosts", text]),
  ["facade", "--console", "false", "--agent-image", "berth:3"],
  ["facade", "--console", "no"],
  ["facade", "--logs-dir", "/var/log/berth/../x"],
  ["facade", "--logs-dir", "/a", "--logs-bucket", "b"],
  [
    "facade",
    "--logs-bucket",
    "b",
    "--logs-prefix",
    "p/",
    "--logs-endpoint",
    "http://minio:9000/",
    "--logs-region",
    "r",
  ],
  ["facade", "--logs-endpoint", "minio"],
  ...["1", "999999", "0", "1000000", "x"].map((text) => ["facade", "--log-cap-mib", text]),
  ["facade", "--workdir-mib-per-minute", "12"],
  ["facade", "--workdir-mib-per-minute", "0"],
  ["facade", "--requests-per-minute", "0", "--discoveries-per-minute", "3", "--failures-per-minute", "999999999"],
  ["facade", "--requests-per-minute", "many"],
  ["facade", "--discoveries-per-minute=-1"],
  ["facade", "--failures-per-minute", "1000000000"],
  ...["1", "9", "0", "10", "10.0.0.0/8, ::1,loopback", "all", "10.0.0.0/8/8", "fd00::/129"].map((text) => [
    "facade",
    "--trust-proxy",
    text,
  ]),
  ["facade", "--oidc-issuer", "https://issuer.test"],
  ["facade", "--oidc-audience", "berth"],
  ["facade", "--oidc-console-client-id", "web"],
  ["facade", ...SIGN_IN, "--oidc-groups-claim", "g", "--oidc-client-id", "cli"],
  [
    "facade",
    ...SIGN_IN,
    "--oidc-console-client-id",
    "w",
    "--oidc-console-audience",
    "wa",
    "--oidc-console-scopes",
    "a b",
  ],
  ["facade", ...SIGN_IN, "--oidc-console-client-id", "web", "--oidc-console-secret-file", "/etc/secret"],
  ["facade", ...SIGN_IN, "--oidc-console-exchange", "facade"],
  ["facade", ...SIGN_IN, "--oidc-console-exchange", "issuer"],
  ["facade", ...SIGN_IN, "--oidc-console-secret-file", "s"],
  ["facade", "--oidc-console-secret-file", "s", "--oidc-console-client-id", "w", "--oidc-console-exchange", "browser"],
  ["facade", "--oidc-console-scopes", "openid,email email "],
  ["agent", "--runtime", "docker", "--shutdown-seconds", "1", "--docker-socket", "unix:///run/docker.sock"],
  ["agent", "--runtime", "podman"],
  ...["0", "9999", "10000"].map((text) => ["agent", "--shutdown-seconds", text]),
  ["agent", "--docker-socket", "tcp://127.0.0.1:2375"],
  ...["auto", "process"].map((text) => ["host", "--runtime", text]),
  ["host", "--token", JOIN_TOKEN],
  ["host", "--token", `${JOIN_TOKEN}.s3cret`],
  ["host", "--gateway-ca", "/nowhere/ca.pem"],
  ["key", "--name", "a b"],
  ["key", "--name", "x".repeat(51)],
  ["key", "--role", "owner"],
  ["key", "--namespace", "one", "--expires-at", "2131-01-31T14:00:00+02:00"],
  ["key", "--expires-at", "2131-01-31T12:00:00.5Z"],
  ["key", "--expires-at", "2131-01-31"],
  ["key", "--expires-at", "2001-01-31T12:00:00Z"],
  ["login", "--issuer", "issuer.test"],
  ["login", "--client-id", "me", "--resource", "https://berth.test"],
  ["smoke", "--url", "one"],
  ["smoke", "--only", "spot", "gpu", "--minutes", "3", "--wait-minutes", "0", "-y", "--region", "eu", "--bucket", "b"],
  ["smoke", "--minutes", "0"],
  ["rotate-sealing-key", "--kubeconfig", "k", "--system-namespace", "berth"],
]

/** Variables of the environment, one after the other, and the command that reads them. */
const VARIABLES: readonly [command: string, name: string, text: string][] = [
  ["operator", "BERTH_SYSTEM_NAMESPACE", "of-env"],
  ["operator", "BERTH_WATCH_NAMESPACE", "of-env"],
  ["operator", "BERTH_METRICS_PORT", "1"],
  ["operator", "BERTH_METRICS_HOST", "of-env"],
  ["operator", "BERTH_IDENTITY_ISSUER", "https://of.env"],
  ["operator", "BERTH_PROJECT_LIMITS", "{}"],
  ["operator", "BERTH_CAPS", "{}"],
  ["operator", "BERTH_PRIVATE_RECEIVERS", "of.env"],
  ["operator", "BERTH_LOG_LEVEL", "warn"],
  ["operator", "BERTH_VM_PROXY", '{"url":"http://of.env"}'],
  ["operator", "BERTH_VM_PROXY", "s3cret"],
  ["operator", "BERTH_VM_CA", "/of/env"],
  ["operator", "BERTH_AWS_NETWORKS", "{}"],
  ["operator", "BERTH_GCP_NETWORKS", "{}"],
  ["operator", "BERTH_PRICE_REFRESH_HOURS", "2"],
  ["operator", "BERTH_SPOT_PRICE_REFRESH_HOURS", "3"],
  ["facade", "BERTH_LOGS_DIR", "/of/env"],
  ["facade", "BERTH_LOGS_BUCKET", "of-env"],
  ["facade", "BERTH_LOGS_PREFIX", "of-env"],
  ["facade", "BERTH_LOGS_ENDPOINT", "http://of.env"],
  ["facade", "BERTH_LOGS_REGION", "of-env"],
  ["facade", "BERTH_LOG_CAP_MIB", "1"],
  ["facade", "BERTH_WORKDIR_MIB_PER_MINUTE", "1"],
  ["facade", "BERTH_REQUESTS_PER_MINUTE", "1"],
  ["facade", "BERTH_DISCOVERIES_PER_MINUTE", "1"],
  ["facade", "BERTH_FAILURES_PER_MINUTE", "1"],
  ["facade", "BERTH_TRUST_PROXY", "1"],
  ["facade", "BERTH_OIDC_ISSUER", "https://of.env"],
  ["facade", "BERTH_OIDC_AUDIENCE", "of-env"],
  ["facade", "BERTH_OIDC_CLIENT_ID", "of-env"],
  ["facade", "BERTH_OIDC_CONSOLE_SECRET_FILE", "/of/env"],
  ["facade", "BERTH_OIDC_CONSOLE_SCOPES", "of env "],
  ["facade", "BERTH_OIDC_CONSOLE_EXCHANGE", "of-env"],
  ["facade", "BERTH_HOST", "of-env"],
  ["facade", "BERTH_PORT", "1"],
  ["facade", "BERTH_BASE_DOMAIN", "of-env"],
  ["facade", "BERTH_PROJECT_HOSTS", "false"],
  ["facade", "BERTH_AGENT_IMAGE", "of-env"],
  ["facade", "BERTH_CONSOLE", "false"],
  ["facade", "BERTH_DEFAULT_PROJECT", "of-env"],
  ["agent", "BERTH_RUNTIME", "process"],
  ["agent", "DOCKER_HOST", "ssh://me@host"],
  ["host", "BERTH_JOIN_TOKEN", "s3cret"],
  ["host", "BERTH_GATEWAY_URL", "https://of.env"],
  ["login", "BERTH_OIDC_CLIENT_ID", "of-env"],
]

beforeEach(() => {
  for (const name of Object.keys(process.env)) if (/^BERTH_|^DOCKER_HOST$/.test(name)) vi.stubEnv(name, undefined)
})
afterEach(() => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
})

/** Returns what a call of the program is read as, or what it prints. */
async function answerTo(args: readonly string[]): Promise<string> {
  let printed = ""
  const print = (text: string | Uint8Array) => {
    printed += text
    return true
  }
  vi.spyOn(process.stdout, "write").mockImplementation(print)
  vi.spyOn(process.stderr, "write").mockImplementation(print)
  vi.spyOn(process, "exit").mockImplementation(() => {
    throw new Error("exit")
  })
  try {
    const { command, options } = await readInvocation(["node", "berth", ...args], "1.0.0")
    return `${command} ${JSON.stringify(options, Object.keys(flat(options)).sort())}`
  } catch (error) {
    if (!(error instanceof Error) || error.message !== "exit") throw error
    return printed
  } finally {
    vi.restoreAllMocks()
  }
}

/** Returns the names of all fields, for a sorted output. */
function flat(value: unknown): Record<string, true> {
  if (typeof value !== "object" || value === null) return {}
  const fields = Array.isArray(value) ? [] : Object.keys(value).map((name) => [name, true])
  return Object.assign(Object.fromEntries(fields), ...Object.values(value).map(flat))
}

it.each(COMMANDS)("the help of %s is as published", async (command) => {
  await expect(await answerTo([command, "--help"])).toMatchFileSnapshot(`../test/options/golden/${command}.txt`)
})

it("the help of the program is as published", async () => {
  await expect(await answerTo(["--help"])).toMatchFileSnapshot("../test/options/golden/berth.txt")
})

it("values are read and rejected as recorded", async () => {
  const lines: string[] = []
  const add = (call: string, answer: string) => lines.push(`${call}\n  ${answer.trimEnd().split("\n")[0]}\n`)
  for (const command of COMMANDS) add(`${command} without arguments`, await answerTo([command]))
  for (const [command = "", ...args] of ARGUMENTS) {
    add(JSON.stringify([command, ...args]), await answerTo([command, ...(REQUIRED[command] ?? []), ...args]))
  }
  for (const [command, name, text] of VARIABLES) {
    vi.stubEnv(name, text)
    add(`${name}=${text} ${command}`, await answerTo([command, ...(REQUIRED[command] ?? [])]))
    vi.stubEnv(name, undefined)
  }
  await expect(lines.join("")).toMatchFileSnapshot("../test/options/golden/values.txt")
})
