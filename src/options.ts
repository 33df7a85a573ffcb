import { Command } from "commander"
import Type from "typebox"
import { ROLES } from "./core/apis/apikey.ts"
import { SpendCapsSchema } from "./core/apis/caps.ts"
import { defined } from "./core/apis/defined.ts"
import { type ProxySettings, proxySettings } from "./core/apis/proxy.ts"
import type { TrustedIssuer } from "./core/identity/oidc.ts"
import { ProjectLimitsSchema } from "./core/quota/project-limits.ts"
import { buildCommand, type OptionTable, type Refuse, type ValuesOf } from "./options/table.ts"
import {
  absolute,
  certificates,
  count,
  domain,
  futureTime,
  hours,
  httpsUrl,
  httpUrl,
  idleSeconds,
  joinToken,
  json,
  keyName,
  mebibytes,
  networks,
  port,
  privateReceivers,
  proxies,
  reuseIdleSeconds,
  scopes,
  seconds,
  socketPath,
  trueOrFalse,
  vmProxy,
  workloadIssuers,
} from "./options/values.ts"
import { SMOKE_DETAILS, SMOKE_SUMMARY, type SmokeFlags, smokeFlags } from "./smoke/options.ts"

/** Runtimes of the local cloud's containers. `auto` uses Docker if an engine answers. */
export const RUNTIME_CHOICES = ["auto", "docker", "process"] as const
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number]

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** Default hours between two requests for prices. */
export const PRICE_REFRESH_HOURS = { list: 12, market: 1 }

/** Default OAuth client id of command lines. */
const CLI_CLIENT_ID = "berth-cli"

/** Options that several programs have, here and in dev/. */
export const SHARED_OPTIONS = {
  logLevel: {
    flag: "--log-level <level>",
    env: "BERTH_LOG_LEVEL",
    about: "lowest level that is logged",
    choices: LOG_LEVELS,
    default: "info",
  },
  port: { flag: "--port <number>", env: "BERTH_PORT", about: "port to listen on", parse: port, default: 8080 },
  runtime: {
    flag: "--runtime <name>",
    env: "BERTH_RUNTIME",
    about: "container runtime of the local cloud",
    choices: RUNTIME_CHOICES,
    default: "auto",
  },
  dockerSocket: {
    flag: "--docker-socket <path>",
    env: "DOCKER_HOST",
    about: "socket of the Docker engine, a path or unix://<path>",
    parse: socketPath,
  },
} as const satisfies OptionTable

/** Options of the programs that only connect to a kube-apiserver. */
const CLUSTER = {
  kubeconfig: { flag: "--kubeconfig <path>", about: "default: $KUBECONFIG, else ~/.kube/config, else in-cluster" },
  systemNamespace: {
    flag: "--system-namespace <name>",
    env: "BERTH_SYSTEM_NAMESPACE",
    about: "namespace of Launches and of Berth's own Secrets",
    default: "berth-system",
  },
} as const satisfies OptionTable

/** Options of operator and façade. */
const KUBE = {
  ...CLUSTER,
  watchNamespace: {
    flag: "--watch-namespace <name>",
    env: "BERTH_WATCH_NAMESPACE",
    about: "namespace to serve (default: all)",
  },
  metricsPort: {
    flag: "--metrics-port <number>",
    env: "BERTH_METRICS_PORT",
    about: "separate port for /metrics, /livez and /readyz (default: not served)",
    parse: port,
  },
  metricsHost: {
    flag: "--metrics-host <address>",
    env: "BERTH_METRICS_HOST",
    about: "address of that port; empty: all IPv4 and IPv6 addresses",
    default: "127.0.0.1",
  },
  identityIssuer: {
    flag: "--identity-issuer <url>",
    env: "BERTH_IDENTITY_ISSUER",
    about: "public URL of the façade, by which clouds verify Berth's identity tokens: connections then need no secret",
    parse: httpsUrl,
  },
  projectLimits: {
    flag: "--project-limits <json>",
    env: "BERTH_PROJECT_LIMITS",
    about: `limits of what a project may store, such as {"unfinishedJobs":20000}: docs/limits.md`,
    parse: json(Type.Partial(ProjectLimitsSchema)),
  },
  caps: {
    flag: "--caps <json>",
    env: "BERTH_CAPS",
    about: `caps of the spending of all projects together, such as {"maxMonthlyUsd":5000}: docs/costs.md`,
    parse: json(SpendCapsSchema),
  },
  privateReceivers: {
    flag: "--private-receivers <list>",
    env: "BERTH_PRIVATE_RECEIVERS",
    about:
      "receivers of webhooks outside of the internet: hosts, domains such as *.corp.example.com and networks such as 10.0.0.0/8, separated by commas: docs/webhooks.md",
    parse: privateReceivers,
  },
  defaultReuseIdleSeconds: {
    flag: "--default-reuse-idle-seconds <n>",
    env: "BERTH_DEFAULT_REUSE_IDLE_SECONDS",
    about: "time that the VMs of jobs without reuse wait for another job; default: they don't: docs/reuse.md",
    parse: reuseIdleSeconds,
  },
  sessions: {
    flag: "--sessions <boolean>",
    env: "BERTH_SESSIONS",
    about:
      "true: developers may run commands in the containers of jobs, and reach their ports; failed VMs can be kept for it: docs/sessions.md (default: false)",
    parse: trueOrFalse,
  },
  logLevel: SHARED_OPTIONS.logLevel,
} as const satisfies OptionTable

export type KubeOptions = ValuesOf<typeof KUBE>

const Ids = (pattern: string) => Type.Array(Type.String({ pattern }), { minItems: 1, maxItems: 16 })

const AwsNetworksSchema = Type.Record(
  Type.String(),
  Type.Object({
    subnetIds: Type.Optional(Ids("^subnet-[0-9a-f]+$")),
    securityGroupIds: Type.Optional(Ids("^sg-[0-9a-f]+$")),
  }),
)

/** Syntax of names in Compute Engine. */
const GcpName = Type.String({ pattern: "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$" })

const GcpNetworksSchema = Type.Record(
  Type.String(),
  Type.Object({ network: Type.Optional(GcpName), subnetwork: Type.Optional(GcpName) }),
)

const OPERATOR = {
  ...KUBE,
  gatewayUrl: {
    flag: "--gateway-url <url>",
    env: "BERTH_GATEWAY_URL",
    about: "URL at which agents reach the gateway",
    parse: httpUrl,
    isRequired: true,
  },
  vmProxy: {
    flag: "--vm-proxy <json>",
    env: "BERTH_VM_PROXY",
    about: `proxy of VMs, such as {"url":"http://proxy.example.com:3128"}: docs/operate.md`,
    parse: vmProxy,
    isSecret: true,
  },
  /** Content of the file. */
  vmCa: {
    flag: "--vm-ca <file>",
    env: "BERTH_VM_CA",
    about: "PEM file with authorities that VMs trust in addition to the public ones: docs/operate.md",
    parse: certificates,
  },
  agentImage: {
    flag: "--agent-image <image>",
    env: "BERTH_AGENT_IMAGE",
    about: "Berth's image from which VMs of public clouds run the agent",
    isRequired: true,
  },
  volumesImage: {
    flag: "--volumes-image <image>",
    env: "BERTH_VOLUMES_IMAGE",
    about: "Berth's image that mounts volumes: VMs of jobs with volumes pull it",
    isRequired: true,
  },
  /** Default: the account's default VPC. */
  awsNetworks: {
    flag: "--aws-networks <json>",
    env: "BERTH_AWS_NETWORKS",
    about: "subnets and security groups of VMs on AWS, by region: docs/aws.md",
    parse: networks(AwsNetworksSchema, { isRegion: /^[a-z]{2}(-[a-z]+)+-[0-9]+$/, example: "eu-central-1" }),
  },
  /** Default: the project's network `default`. */
  gcpNetworks: {
    flag: "--gcp-networks <json>",
    env: "BERTH_GCP_NETWORKS",
    about: "network and subnetwork of VMs on Google Cloud, by region: docs/gcp.md",
    parse: networks(GcpNetworksSchema, { isRegion: /^[a-z]+-[a-z]+[0-9]+$/, example: "europe-west1" }),
  },
  defaultIdleSeconds: {
    flag: "--default-idle-seconds <number>",
    env: "BERTH_DEFAULT_IDLE_SECONDS",
    about: "idle limit of jobs without one, at least 300; default: none: docs/usage.md",
    parse: idleSeconds,
  },
  priceRefreshHours: {
    flag: "--price-refresh-hours <number>",
    env: "BERTH_PRICE_REFRESH_HOURS",
    about: "hours between two requests for the clouds' prices; 0: never",
    parse: hours,
    default: PRICE_REFRESH_HOURS.list,
  },
  spotPriceRefreshHours: {
    flag: "--spot-price-refresh-hours <number>",
    env: "BERTH_SPOT_PRICE_REFRESH_HOURS",
    about: "hours between two requests for spot prices that change every hour; 0: never",
    parse: hours,
    default: PRICE_REFRESH_HOURS.market,
  },
} as const satisfies OptionTable

export type OperatorOptions = ValuesOf<typeof OPERATOR>

/** Options for the storage of job logs. */
const LOGS = {
  logsDir: {
    flag: "--logs-dir <path>",
    env: "BERTH_LOGS_DIR",
    about: "folder for job logs, with one replica only",
    parse: absolute,
    conflicts: "logsBucket",
  },
  logsBucket: {
    flag: "--logs-bucket <name>",
    env: "BERTH_LOGS_BUCKET",
    about: "S3 bucket for job logs; required with several replicas",
  },
  logsPrefix: {
    flag: "--logs-prefix <prefix>",
    env: "BERTH_LOGS_PREFIX",
    about: "prefix of all object names in the bucket",
  },
  logsEndpoint: {
    flag: "--logs-endpoint <url>",
    env: "BERTH_LOGS_ENDPOINT",
    about: "URL of an S3-compatible store other than AWS",
    parse: httpUrl,
  },
  logsRegion: {
    flag: "--logs-region <name>",
    env: "BERTH_LOGS_REGION",
    about: "region of the bucket; default: $AWS_REGION",
  },
  logCapMib: {
    flag: "--log-cap-mib <number>",
    env: "BERTH_LOG_CAP_MIB",
    about: "MiB that are kept of a job's log: its beginning and its end (default: 64)",
    parse: mebibytes,
  },
  workdirMibPerMinute: {
    flag: "--workdir-mib-per-minute <number>",
    env: "BERTH_WORKDIR_MIB_PER_MINUTE",
    about: "MiB of workdirs that a replica sends to VMs (default: 6000)",
    parse: mebibytes,
  },
} as const satisfies OptionTable

/** Options that limit callers, and that determine their addresses. */
const CALLERS = {
  requestsPerMinute: {
    flag: "--requests-per-minute <number>",
    env: "BERTH_REQUESTS_PER_MINUTE",
    about: "maximum per caller, on each replica; 0: no limit (default: 600)",
    parse: count,
  },
  discoveriesPerMinute: {
    flag: "--discoveries-per-minute <number>",
    env: "BERTH_DISCOVERIES_PER_MINUTE",
    about: "maximum of discovery requests, a separate limit (default: 30)",
    parse: count,
  },
  failuresPerMinute: {
    flag: "--failures-per-minute <number>",
    env: "BERTH_FAILURES_PER_MINUTE",
    about: "maximum of failed authentications from one address; 0: no limit (default: 60)",
    parse: count,
  },
  trustProxy: {
    flag: "--trust-proxy <which>",
    env: "BERTH_TRUST_PROXY",
    about:
      "trusted proxies that set X-Forwarded-* headers: their addresses or networks, or their number " +
      "(default: none; then all clients have the proxy's address)",
    parse: proxies,
  },
} as const satisfies OptionTable

/** Options of the sign-in of people. */
const SIGN_IN = {
  oidcIssuer: {
    flag: "--oidc-issuer <url>",
    env: "BERTH_OIDC_ISSUER",
    about: "issuer of the tokens with which users sign in",
  },
  oidcAudience: {
    flag: "--oidc-audience <name>",
    env: "BERTH_OIDC_AUDIENCE",
    about: "audience of these tokens (claim aud)",
  },
  oidcGroupsClaim: {
    flag: "--oidc-groups-claim <name>",
    env: "BERTH_OIDC_GROUPS_CLAIM",
    about: "claim with the user's groups",
    default: "groups",
  },
  oidcClientId: {
    flag: "--oidc-client-id <id>",
    env: "BERTH_OIDC_CLIENT_ID",
    about: "OAuth client id with which command lines sign in",
    default: CLI_CLIENT_ID,
  },
  oidcConsoleClientId: {
    flag: "--oidc-console-client-id <id>",
    env: "BERTH_OIDC_CONSOLE_CLIENT_ID",
    about: "OAuth client id with which the web console signs in (default: the one of command lines)",
  },
  oidcConsoleAudience: {
    flag: "--oidc-console-audience <name>",
    env: "BERTH_OIDC_CONSOLE_AUDIENCE",
    about: "audience of the tokens of that client, accepted in addition to --oidc-audience (default: --oidc-audience)",
  },
  oidcConsoleScopes: {
    flag: "--oidc-console-scopes <scopes>",
    env: "BERTH_OIDC_CONSOLE_SCOPES",
    about: 'scopes that the console requests (default: "openid email")',
    parse: scopes,
  },
  oidcConsoleSecretFile: {
    flag: "--oidc-console-secret-file <path>",
    env: "BERTH_OIDC_CONSOLE_SECRET_FILE",
    about: "file with the secret of that client; the façade then exchanges the codes of sign-ins",
    parse: absolute,
  },
  oidcConsoleExchange: {
    flag: "--oidc-console-exchange <where>",
    env: "BERTH_OIDC_CONSOLE_EXCHANGE",
    about: "program that exchanges the code of a sign-in: facade for an issuer without CORS (default: browser)",
    choices: ["browser", "facade"],
  },
  workloadIssuers: {
    flag: "--workload-issuers <json>",
    env: "BERTH_WORKLOAD_ISSUERS",
    about: `issuers of CI systems whose tokens keys may trust, such as [{"issuer":"https://token.actions.githubusercontent.com","audience":"https://berth.example.com"}]: docs/ci.md`,
    parse: workloadIssuers,
  },
} as const satisfies OptionTable

const FACADE = {
  ...KUBE,
  ...LOGS,
  ...CALLERS,
  ...SIGN_IN,
  host: {
    flag: "--host <address>",
    env: "BERTH_HOST",
    about: "address to listen on; empty: all IPv4 and IPv6 addresses",
    default: "127.0.0.1",
  },
  port: SHARED_OPTIONS.port,
  baseDomain: {
    flag: "--base-domain <domain>",
    env: "BERTH_BASE_DOMAIN",
    about: "parent domain: each subdomain is a project",
    default: "localhost",
  },
  projectHosts: {
    flag: "--project-hosts <boolean>",
    env: "BERTH_PROJECT_HOSTS",
    about: "false: no host names a project; projects are only at /projects/<project>/1 (default: true)",
    parse: trueOrFalse,
  },
  agentImage: {
    flag: "--agent-image <image>",
    env: "BERTH_AGENT_IMAGE",
    about: "agent image of the operator, for dry runs and hosts of own machines",
  },
  gatewayUrl: {
    flag: "--gateway-url <url>",
    env: "BERTH_GATEWAY_URL",
    about: "URL at which hosts of own machines reach the gateway, for the command of berth machine join",
    parse: httpUrl,
  },
  /** Content of the file. */
  gatewayCa: {
    flag: "--gateway-ca <file>",
    env: "BERTH_GATEWAY_CA",
    about:
      "PEM file with authorities that hosts of own machines trust in addition to the public ones, for that command",
    parse: certificates,
  },
  console: {
    flag: "--console <boolean>",
    env: "BERTH_CONSOLE",
    about: "false: the web console is not served at /console/ (default: true)",
    parse: trueOrFalse,
  },
  sessionDomain: {
    flag: "--session-domain <domain>",
    env: "BERTH_SESSION_DOMAIN",
    about:
      "domain whose subdomains are ports of running jobs, for browsers (default: none): a wildcard name and certificate must lead here",
    parse: domain,
  },
  replicaHost: {
    flag: "--replica-host <address>",
    env: "BERTH_REPLICA_HOST",
    about: "address at which other replicas reach this one, for sessions (default: the one that it listens on)",
  },
  defaultProject: {
    flag: "--default-project <name>",
    env: "BERTH_DEFAULT_PROJECT",
    about: "project of hosts without a project label",
  },
} as const satisfies OptionTable

export type FacadeOptions = Omit<
  ValuesOf<typeof FACADE>,
  Exclude<keyof typeof SIGN_IN, "oidcClientId" | "workloadIssuers">
> & {
  /** Issuer of the tokens with which users sign in; absent: sign-in is disabled. */
  issuer?: TrustedIssuer
  /** Client with which the web console signs people in. Present with an issuer. */
  consoleClient?: ConsoleClientOptions
}

/** Client of the web console at the issuer. */
export interface ConsoleClientOptions {
  /** Default: the client of command lines. */
  clientId?: string
  /** Separated by spaces. */
  scopes?: string
  /** Program that exchanges the code of a sign-in. Default: facade for a client with a secret, else browser. */
  exchange?: "browser" | "facade"
  /** File with the client's secret. */
  secretFile?: string
}

const AGENT = {
  dataDir: {
    flag: "--data-dir <path>",
    env: "BERTH_DATA_DIR",
    about: "folder of user-data.json and of the agent's state",
    parse: absolute,
    isRequired: true,
  },
  runtime: SHARED_OPTIONS.runtime,
  dockerSocket: SHARED_OPTIONS.dockerSocket,
  shutdownSeconds: {
    flag: "--shutdown-seconds <number>",
    about: "maximum time from SIGTERM to the agent's end (default: as long as uploads may take)",
    parse: seconds,
  },
  logLevel: SHARED_OPTIONS.logLevel,
} as const satisfies OptionTable

export type AgentOptions = ValuesOf<typeof AGENT>

const HOST = {
  gateway: {
    flag: "--gateway <url>",
    env: "BERTH_GATEWAY_URL",
    about: "URL of Berth",
    parse: httpUrl,
    isRequired: true,
  },
  gatewayCa: {
    flag: "--gateway-ca <file>",
    env: "BERTH_GATEWAY_CA",
    about: "PEM file of authorities to trust in addition to the public ones",
    parse: certificates,
  },
  token: {
    flag: "--token <token>",
    env: "BERTH_JOIN_TOKEN",
    about: "join token of `berth machine join`; needed once",
    parse: joinToken,
    isSecret: true,
  },
  dataDir: {
    flag: "--data-dir <path>",
    env: "BERTH_DATA_DIR",
    about: "folder of the agent's keys and state",
    parse: absolute,
    isRequired: true,
  },
  runtime: {
    flag: "--runtime <name>",
    env: "BERTH_RUNTIME",
    about: "what runs jobs; process isolates nothing",
    choices: ["docker", "process"],
    default: "docker",
  },
  dockerSocket: SHARED_OPTIONS.dockerSocket,
  logLevel: SHARED_OPTIONS.logLevel,
} as const satisfies OptionTable

export type HostOptions = ValuesOf<typeof HOST>

const KEY = {
  name: { flag: "--name <name>", about: "unique in the project", parse: keyName, isRequired: true },
  role: { flag: "--role <role>", about: "role of the key", choices: ROLES, isRequired: true },
  namespace: {
    flag: "--namespace <name>",
    about: "namespace of the project; default: the namespace in which you apply the manifest",
  },
  /** RFC 3339, in UTC. */
  expiresAt: {
    flag: "--expires-at <time>",
    about: "time at which the key expires (default: never)",
    parse: futureTime,
  },
} as const satisfies OptionTable

/** API key for a manifest. */
export type KeyOptions = ValuesOf<typeof KEY>

const LOGIN = {
  issuer: { flag: "--issuer <url>", env: "BERTH_OIDC_ISSUER", about: "where", parse: httpUrl, isRequired: true },
  clientId: { flag: "--client-id <id>", env: "BERTH_OIDC_CLIENT_ID", about: "OAuth client id", default: CLI_CLIENT_ID },
  resource: { flag: "--resource <uri>", about: "resource that the token is for, if the issuer requires it (RFC 8707)" },
} as const satisfies OptionTable

/** Issuer and client of a sign-in. */
export type LoginOptions = ValuesOf<typeof LOGIN>

/** Options of the smoke test besides `smokeFlags`, which the command `berth smoke` for people has too. */
const SMOKE = {
  url: { flag: "--url <url>", env: "BERTH_URL", about: "URL of a project", parse: httpUrl, isRequired: true },
  apiKey: {
    flag: "--api-key <key>",
    env: "BERTH_API_KEY",
    about: "key with the role developer; other users can see a command line",
    isRequired: true,
  },
} as const satisfies OptionTable

export type SmokeCommandOptions = ValuesOf<typeof SMOKE> & SmokeFlags

/** Options of the rotation of the sealing key. */
export type RotateOptions = ValuesOf<typeof CLUSTER>

/** Command and options of one call. */
export type Invocation =
  | { command: "operator"; options: OperatorOptions }
  | { command: "facade"; options: FacadeOptions }
  | { command: "agent"; options: AgentOptions }
  | { command: "host"; options: HostOptions }
  | { command: "key"; options: KeyOptions }
  | { command: "login"; options: LoginOptions }
  | { command: "smoke"; options: SmokeCommandOptions }
  | { command: "rotate-sealing-key"; options: RotateOptions }

/**
 * Parses the command line and the environment; no other code does. If there is nothing to run, it prints help, the
 * version or the error, and ends the process.
 * @param argv as process.argv
 */
export async function readInvocation(argv: string[], version: string): Promise<Invocation> {
  let invocation: Invocation | undefined
  const program = new Command("berth")
    .description("Runs declarative container jobs on the cheapest cloud VM that fits.")
    .version(version)
    .showHelpAfterError()
  const choose = (chosen: Invocation) => {
    invocation = chosen
  }
  for (const command of commands(choose)) program.addCommand(command)
  await program.parseAsync(argv)
  if (invocation === undefined) return program.help({ error: true })
  return invocation
}

function commands(choose: (invocation: Invocation) => void): Command[] {
  const smoke = buildCommand("smoke", `${SMOKE_SUMMARY} ${SMOKE_DETAILS}`, SMOKE, (options) =>
    // The flags that are added below.
    choose({ command: "smoke", options: options as SmokeCommandOptions }),
  )
  for (const flag of smokeFlags()) smoke.addOption(flag)
  return [
    buildCommand(
      "operator",
      "Run the controllers that run jobs on VMs. One replica leads at a time.",
      OPERATOR,
      (options) => choose({ command: "operator", options }),
    ),
    buildCommand(
      "facade",
      "Serve the REST API and the agents' gateway, with any number of replicas.",
      FACADE,
      (options, refuse) => choose({ command: "facade", options: facadeOptions(options, refuse) }),
    ),
    buildCommand("agent", "Run one job's container on a VM, and report to the gateway.", AGENT, (options) =>
      choose({ command: "agent", options }),
    ),
    buildCommand(
      "host",
      "Run jobs on this machine, one after another, as a machine of yours that Berth knows.",
      HOST,
      (options) => choose({ command: "host", options }),
    ),
    buildCommand(
      "key",
      "Create an API key for GitOps. The value is printed to standard error, for the key's owner. The manifest, which has only " +
        "the value's hash, is printed to standard output. Nothing is stored.",
      KEY,
      (options) => choose({ command: "key", options }),
    ),
    buildCommand(
      "login",
      "Sign in at an OIDC issuer. The address to open is printed to standard error. The token, for the header " +
        "Authorization: Bearer, is printed to standard output.",
      LOGIN,
      (options) => choose({ command: "login", options }),
    ),
    smoke,
    buildCommand(
      "rotate-sealing-key",
      "Create a new key that encrypts the credentials of connections. The operator then encrypts all credentials with it " +
        "and deletes the old key when it is no longer in use.",
      CLUSTER,
      (options) => choose({ command: "rotate-sealing-key", options }),
    ),
  ]
}

/** Takes issuer and console's client out of the options, and checks that they fit together. */
function facadeOptions(values: ValuesOf<typeof FACADE>, refuse: Refuse): FacadeOptions {
  const {
    oidcIssuer: issuer,
    oidcAudience: audience,
    oidcGroupsClaim: groupsClaim,
    oidcConsoleClientId: clientId,
    oidcConsoleAudience: consoleAudience,
    oidcConsoleScopes: scopes,
    oidcConsoleSecretFile: secretFile,
    oidcConsoleExchange: exchange = secretFile === undefined ? "browser" : "facade",
    ...options
  } = values
  if ((issuer === undefined) !== (audience === undefined)) {
    refuse(
      "--oidc-issuer requires --oidc-audience, and the reverse: without an audience, tokens of other services would be valid here",
    )
  }
  if (options.workloadIssuers?.some((workload) => workload.issuer === issuer)) {
    refuse(`--workload-issuers must not have ${issuer}: people sign in there`)
  }
  if (secretFile !== undefined && clientId === undefined) {
    refuse("--oidc-console-secret-file requires --oidc-console-client-id: the client of command lines has no secret")
  }
  if (secretFile !== undefined && exchange !== "facade") {
    refuse("--oidc-console-secret-file requires --oidc-console-exchange facade: a browser can't keep the secret")
  }
  const { sessionDomain, baseDomain, sessions = false } = options
  if (sessionDomain !== undefined && !sessions) refuse("--session-domain requires --sessions true")
  if (sessionDomain !== undefined && `.${baseDomain.toLowerCase()}`.endsWith(`.${sessionDomain}`)) {
    refuse(
      `--session-domain ${sessionDomain} has --base-domain ${baseDomain} in it, where Berth answers: give ports a domain of their own, such as ports.${baseDomain}`,
    )
  }
  if (issuer === undefined || audience === undefined) return options
  return {
    ...options,
    issuer: { issuer, audience, groupsClaim, ...defined({ consoleAudience }) },
    consoleClient: { exchange, ...defined({ clientId, scopes, secretFile }) },
  }
}

/** Returns the proxies of this process. @throws RangeError for a URL that is none */
export function proxyInEnvironment(): ProxySettings | undefined {
  return proxySettings(process.env)
}
