import { readFileSync } from "node:fs"
import { isIP } from "node:net"
import { resolve } from "node:path"
import { Command, InvalidArgumentError, Option } from "commander"
import Type, { type Static, type TSchema } from "typebox"
import { ROLES, type Role } from "./core/apis/apikey.ts"
import { type SpendCaps, SpendCapsSchema } from "./core/apis/caps.ts"
import { defined } from "./core/apis/defined.ts"
import { LIMITS } from "./core/apis/limits.ts"
import { toMetadataName } from "./core/apis/names.ts"
import { type ProxySettings, proxySettings } from "./core/apis/proxy.ts"
import { errorsOf } from "./core/apis/validate.ts"
import { type VmProxy, VmProxySchema } from "./core/apis/vm-proxy.ts"
import type { TrustedIssuer } from "./core/identity/oidc.ts"
import { type ProjectLimits, ProjectLimitsSchema } from "./core/limits/project-limits.ts"
import type { PrivateTargets } from "./core/outbound/public-fetch.ts"
import { SMOKE_DETAILS, SMOKE_SUMMARY, type SmokeFlags, smokeFlags } from "./smoke/options.ts"

/** Options of every program that connects to a kube-apiserver. */
export interface KubeOptions {
  /** Path of a kubeconfig. Default: the order of client-node: $KUBECONFIG, ~/.kube/config, in-cluster. */
  kubeconfig?: string
  /** Namespace of Launches and of Berth's own Secrets. */
  systemNamespace: string
  /** Only namespace whose Jobs are served; absent: all. */
  watchNamespace?: string
  /** Port of /metrics, /livez and /readyz, separate from everything else; absent: they are not served. */
  metricsPort?: number
  /** Address of that port. Default: the loopback address; empty: all. */
  metricsHost?: string
  /** URL of the issuer of identity tokens, by which connections sign in to clouds without a secret. */
  identityIssuer?: string
  /** Limits of what projects may store. Default: PROJECT_LIMITS. */
  projectLimits?: Partial<ProjectLimits>
  /** Caps of the installation, over all projects. */
  caps?: SpendCaps
  /** Receivers of webhooks outside of the internet that users may name. Default: none. */
  privateReceivers?: PrivateTargets
  logLevel: LogLevel
}

export interface OperatorOptions extends KubeOptions {
  /** URL at which agents reach the gateway. */
  gatewayUrl: string
  /** Proxy of VMs. */
  vmProxy?: VmProxy
  /** PEM of authorities that VMs trust in addition to the public ones. */
  vmCa?: string
  /** Berth's image from which VMs of public clouds run the agent. */
  agentImage?: string
  /** Berth's image with rclone, which VMs of jobs with volumes pull. */
  volumesImage?: string
  /** Networks of VMs on AWS, by region. Default: the account's default VPC. */
  awsNetworks?: AwsNetworks
  /** Networks of VMs on Google Cloud, by region. Default: the project's network `default`. */
  gcpNetworks?: GcpNetworks
  /** Hours between two requests for the clouds' price lists; 0 or absent: never. */
  priceRefreshHours?: number
  /** Hours between two requests for spot prices that change every hour. */
  spotPriceRefreshHours?: number
}

/** Default hours between two requests for prices. */
export const PRICE_REFRESH_HOURS = { list: 12, market: 1 }

const Ids = (pattern: string) => Type.Array(Type.String({ pattern }), { minItems: 1, maxItems: 16 })

const AWS_REGION = /^[a-z]{2}(-[a-z]+)+-[0-9]+$/

const AwsNetworksSchema = Type.Record(
  Type.String(),
  Type.Object({
    subnetIds: Type.Optional(Ids("^subnet-[0-9a-f]+$")),
    securityGroupIds: Type.Optional(Ids("^sg-[0-9a-f]+$")),
  }),
)
type AwsNetworks = Static<typeof AwsNetworksSchema>

const GCP_REGION = /^[a-z]+-[a-z]+[0-9]+$/

/** Syntax of names in Compute Engine. */
const GcpName = Type.String({ pattern: "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$" })

const GcpNetworksSchema = Type.Record(
  Type.String(),
  Type.Object({ network: Type.Optional(GcpName), subnetwork: Type.Optional(GcpName) }),
)
type GcpNetworks = Static<typeof GcpNetworksSchema>

export interface FacadeOptions extends KubeOptions {
  /** Agent image of the operator, for dry runs. */
  agentImage?: string
  /** Address to listen on; empty: all. */
  host: string
  port: number
  /** Parent domain: each subdomain is a project. */
  baseDomain: string
  /** False: no host names a project. */
  projectHosts?: boolean
  /** Project of hosts without a project label, such as localhost. */
  defaultProject?: string
  /** Folder for logs, with one replica only. */
  logsDir?: string
  /** Bucket for logs. */
  logsBucket?: string
  logsPrefix?: string
  logsEndpoint?: string
  logsRegion?: string
  /** Size to which the log of a job is limited, MiB. Default 64. */
  logCapMib?: number
  /** MiB of working directories that a replica sends to VMs in a minute. Default 6000. */
  workdirMibPerMinute?: number
  /** Maximum per caller, on each replica; 0: no limit. */
  requestsPerMinute?: number
  /** Maximum of discovery requests, a separate limit. */
  discoveriesPerMinute?: number
  /** Maximum of failed authentications from one address, on each replica; 0: no limit. */
  failuresPerMinute?: number
  /** Trusted proxies that set X-Forwarded-* headers: their addresses or networks, or their number. */
  trustProxy?: string | number
  /** Issuer of the tokens with which users sign in; absent: sign-in is disabled. */
  issuer?: TrustedIssuer
  /** OAuth client id with which command lines sign in. */
  oidcClientId?: string
  /** False: the web console is not served. */
  console?: boolean
  /** Client with which the web console signs people in. */
  consoleClient?: ConsoleClientOptions
}

/** Places where the code of the console's sign-in can be exchanged for a token. */
const EXCHANGES = ["browser", "facade"] as const

/** Client of the web console at the issuer. */
export interface ConsoleClientOptions {
  /** Default: the client of command lines. */
  clientId?: string
  /** Separated by spaces. */
  scopes?: string
  /** Default: facade for a client with a secret, else browser. */
  exchange?: (typeof EXCHANGES)[number]
  /** File with the client's secret. */
  secretFile?: string
}

export interface AgentOptions {
  dataDir: string
  runtime: RuntimeChoice
  /** Maximum seconds from SIGTERM to the agent's end; absent: as long as uploads may take. */
  shutdownSeconds?: number
  /** Path of the Docker engine's socket; default: Docker's own. */
  dockerSocket?: string
  logLevel: LogLevel
}

/** Runtimes of the local cloud's containers. `auto` uses Docker if an engine answers. */
export const RUNTIME_CHOICES = ["auto", "docker", "process"] as const
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number]

/** API key for a manifest. */
export interface KeyOptions {
  name: string
  role: Role
  namespace?: string
  /** RFC 3339, in UTC. */
  expiresAt?: string
}

/** Issuer and client of a sign-in. */
export interface LoginOptions {
  issuer: string
  clientId: string
  resource?: string
}

/** Options of the smoke test. */
export interface SmokeCommandOptions extends SmokeFlags {
  url: string
  apiKey: string
}

/** Options of the rotation of the sealing key. */
export type RotateOptions = Pick<KubeOptions, "kubeconfig" | "systemNamespace">

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** Command and options of one call. */
export type Invocation =
  | { command: "operator"; options: OperatorOptions }
  | { command: "facade"; options: FacadeOptions }
  | { command: "agent"; options: AgentOptions }
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
  const chosen = (chosenInvocation: Invocation) => {
    invocation = chosenInvocation
  }
  const program = new Command("berth")
    .description("Runs declarative container jobs on the cheapest cloud VM that fits.")
    .version(version)
    .showHelpAfterError()
    .addCommand(operatorCommand(chosen))
    .addCommand(facadeCommand(chosen))
    .addCommand(agentCommand(chosen))
    .addCommand(keyCommand(chosen))
    .addCommand(loginCommand(chosen))
    .addCommand(smokeCommand(chosen))
    .addCommand(rotateCommand(chosen))
  await program.parseAsync(argv)
  if (invocation === undefined) return program.help({ error: true })
  return invocation
}

/** Default OAuth client id of command lines. */
const CLI_CLIENT_ID = "berth-cli"

type Choose = (invocation: Invocation) => void

function operatorCommand(choose: Choose): Command {
  return withKubeOptions(new Command("operator"))
    .description("Run the controllers that run jobs on VMs. One replica leads at a time.")
    .addOption(
      new Option("--gateway-url <url>", "URL at which agents reach the gateway")
        .env("BERTH_GATEWAY_URL")
        .makeOptionMandatory()
        .argParser(httpUrl),
    )
    .addOption(
      new Option(
        "--vm-proxy <json>",
        `proxy of VMs, such as {"url":"http://proxy.example.com:3128"}: docs/operate.md`,
      ).env("BERTH_VM_PROXY"),
    )
    .addOption(
      new Option(
        "--vm-ca <file>",
        "PEM file with authorities that VMs trust in addition to the public ones: docs/operate.md",
      )
        .env("BERTH_VM_CA")
        .argParser(certificates),
    )
    .addOption(
      new Option("--agent-image <image>", "Berth's image from which VMs of public clouds run the agent")
        .env("BERTH_AGENT_IMAGE")
        .makeOptionMandatory(),
    )
    .addOption(
      new Option("--volumes-image <image>", "Berth's image that mounts volumes: VMs of jobs with volumes pull it")
        .env("BERTH_VOLUMES_IMAGE")
        .makeOptionMandatory(),
    )
    .addOption(
      new Option("--aws-networks <json>", "subnets and security groups of VMs on AWS, by region: docs/aws.md")
        .env("BERTH_AWS_NETWORKS")
        .argParser((text) => networks(text, AwsNetworksSchema, { isRegion: AWS_REGION, example: "eu-central-1" })),
    )
    .addOption(
      new Option("--gcp-networks <json>", "network and subnetwork of VMs on Google Cloud, by region: docs/gcp.md")
        .env("BERTH_GCP_NETWORKS")
        .argParser((text) => networks(text, GcpNetworksSchema, { isRegion: GCP_REGION, example: "europe-west1" })),
    )
    .addOption(
      new Option("--price-refresh-hours <number>", "hours between two requests for the clouds' prices; 0: never")
        .env("BERTH_PRICE_REFRESH_HOURS")
        .default(PRICE_REFRESH_HOURS.list)
        .argParser(hours),
    )
    .addOption(
      new Option(
        "--spot-price-refresh-hours <number>",
        "hours between two requests for spot prices that change every hour; 0: never",
      )
        .env("BERTH_SPOT_PRICE_REFRESH_HOURS")
        .default(PRICE_REFRESH_HOURS.market)
        .argParser(hours),
    )
    .action((_, command: Command) => choose({ command: "operator", options: operatorOptions(command) }))
}

function operatorOptions(command: Command): OperatorOptions {
  const { vmProxy: text, ...options } = kubeOptions<Omit<OperatorOptions, "vmProxy"> & { vmProxy?: string }>(command)
  if (text === undefined) return options
  const proxy = vmProxyIn(text)
  // Commander would print the value of an option that its parser rejects, and this one may have a password.
  if (typeof proxy === "string") command.error(`error: --vm-proxy (BERTH_VM_PROXY) is not valid: ${proxy}`)
  return { ...options, vmProxy: proxy }
}

function facadeCommand(choose: Choose): Command {
  return withSignInOptions(withLimitOptions(withLogOptions(withKubeOptions(new Command("facade")))))
    .description("Serve the REST API and the agents' gateway, with any number of replicas.")
    .addOption(
      new Option("--host <address>", "address to listen on; empty: all IPv4 and IPv6 addresses")
        .env("BERTH_HOST")
        .default("127.0.0.1"),
    )
    .addOption(portOption())
    .addOption(
      new Option("--base-domain <domain>", "parent domain: each subdomain is a project")
        .env("BERTH_BASE_DOMAIN")
        .default("localhost"),
    )
    .addOption(
      new Option(
        "--project-hosts <boolean>",
        "false: no host names a project; projects are only at /projects/<project>/1 (default: true)",
      )
        .env("BERTH_PROJECT_HOSTS")
        .argParser(trueOrFalse),
    )
    .addOption(
      new Option("--agent-image <image>", "agent image of the operator, for dry runs").env("BERTH_AGENT_IMAGE"),
    )
    .addOption(
      new Option("--console <boolean>", "false: the web console is not served at /console/ (default: true)")
        .env("BERTH_CONSOLE")
        .argParser(trueOrFalse),
    )
    .addOption(
      new Option("--default-project <name>", "project of hosts without a project label").env("BERTH_DEFAULT_PROJECT"),
    )
    .action((_, command: Command) => choose({ command: "facade", options: facadeOptions(command) }))
}

/** Adds the options of the sign-in of people. */
function withSignInOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--oidc-issuer <url>", "issuer of the tokens with which users sign in").env("BERTH_OIDC_ISSUER"),
    )
    .addOption(new Option("--oidc-audience <name>", "audience of these tokens (claim aud)").env("BERTH_OIDC_AUDIENCE"))
    .addOption(
      new Option("--oidc-groups-claim <name>", "claim with the user's groups")
        .env("BERTH_OIDC_GROUPS_CLAIM")
        .default("groups"),
    )
    .addOption(
      new Option("--oidc-client-id <id>", "OAuth client id with which command lines sign in")
        .env("BERTH_OIDC_CLIENT_ID")
        .default(CLI_CLIENT_ID),
    )
    .addOption(
      new Option(
        "--oidc-console-client-id <id>",
        "OAuth client id with which the web console signs in (default: the one of command lines)",
      ).env("BERTH_OIDC_CONSOLE_CLIENT_ID"),
    )
    .addOption(
      new Option(
        "--oidc-console-audience <name>",
        "audience of the tokens of that client, accepted in addition to --oidc-audience (default: --oidc-audience)",
      ).env("BERTH_OIDC_CONSOLE_AUDIENCE"),
    )
    .addOption(
      new Option("--oidc-console-scopes <scopes>", 'scopes that the console requests (default: "openid email")')
        .env("BERTH_OIDC_CONSOLE_SCOPES")
        .argParser(scopes),
    )
    .addOption(
      new Option(
        "--oidc-console-secret-file <path>",
        "file with the secret of that client; the façade then exchanges the codes of sign-ins",
      )
        .env("BERTH_OIDC_CONSOLE_SECRET_FILE")
        .argParser(absolute),
    )
    .addOption(
      new Option(
        "--oidc-console-exchange <where>",
        "program that exchanges the code of a sign-in: facade for an issuer without CORS (default: browser)",
      )
        .env("BERTH_OIDC_CONSOLE_EXCHANGE")
        .choices(EXCHANGES),
    )
}

/** Adds the options for the storage of job logs. */
function withLogOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--logs-dir <path>", "folder for job logs, with one replica only")
        .env("BERTH_LOGS_DIR")
        .conflicts("logsBucket")
        .argParser(absolute),
    )
    .addOption(
      new Option("--logs-bucket <name>", "S3 bucket for job logs; required with several replicas").env(
        "BERTH_LOGS_BUCKET",
      ),
    )
    .addOption(
      new Option("--logs-prefix <prefix>", "prefix of all object names in the bucket").env("BERTH_LOGS_PREFIX"),
    )
    .addOption(
      new Option("--logs-endpoint <url>", "URL of an S3-compatible store other than AWS")
        .env("BERTH_LOGS_ENDPOINT")
        .argParser(httpUrl),
    )
    .addOption(
      new Option("--logs-region <name>", "region of the bucket; default: $AWS_REGION").env("BERTH_LOGS_REGION"),
    )
    .addOption(
      new Option("--log-cap-mib <number>", "MiB that are kept of a job's log: its beginning and its end (default: 64)")
        .env("BERTH_LOG_CAP_MIB")
        .argParser(mebibytes),
    )
    .addOption(
      new Option("--workdir-mib-per-minute <number>", "MiB of workdirs that a replica sends to VMs (default: 6000)")
        .env("BERTH_WORKDIR_MIB_PER_MINUTE")
        .argParser(mebibytes),
    )
}

/** Adds the options that limit callers, and that determine their addresses. */
function withLimitOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--requests-per-minute <number>", "maximum per caller, on each replica; 0: no limit (default: 600)")
        .env("BERTH_REQUESTS_PER_MINUTE")
        .argParser(count),
    )
    .addOption(
      new Option("--discoveries-per-minute <number>", "maximum of discovery requests, a separate limit (default: 30)")
        .env("BERTH_DISCOVERIES_PER_MINUTE")
        .argParser(count),
    )
    .addOption(
      new Option(
        "--failures-per-minute <number>",
        "maximum of failed authentications from one address; 0: no limit (default: 60)",
      )
        .env("BERTH_FAILURES_PER_MINUTE")
        .argParser(count),
    )
    .addOption(
      new Option(
        "--trust-proxy <which>",
        "trusted proxies that set X-Forwarded-* headers: their addresses or networks, or their number " +
          "(default: none; then all clients have the proxy's address)",
      )
        .env("BERTH_TRUST_PROXY")
        .argParser(proxies),
    )
}

function agentCommand(choose: Choose): Command {
  return new Command("agent")
    .description("Run one job's container on a VM, and report to the gateway.")
    .addOption(
      new Option("--data-dir <path>", "folder of user-data.json and of the agent's state")
        .env("BERTH_DATA_DIR")
        .makeOptionMandatory()
        .argParser(absolute),
    )
    .addOption(runtimeOption())
    .addOption(dockerSocketOption())
    .addOption(
      new Option(
        "--shutdown-seconds <number>",
        "maximum time from SIGTERM to the agent's end (default: as long as uploads may take)",
      ).argParser(seconds),
    )
    .addOption(logLevelOption())
    .action((options: AgentOptions) => choose({ command: "agent", options }))
}

function keyCommand(choose: Choose): Command {
  return new Command("key")
    .description(
      "Create an API key for GitOps. The value is printed to standard error, for the key's owner. The manifest, which has only " +
        "the value's hash, is printed to standard output. Nothing is stored.",
    )
    .addOption(new Option("--name <name>", "unique in the project").makeOptionMandatory().argParser(keyName))
    .addOption(new Option("--role <role>", "role of the key").makeOptionMandatory().choices(ROLES))
    .addOption(
      new Option(
        "--namespace <name>",
        "namespace of the project; default: the namespace in which you apply the manifest",
      ),
    )
    .addOption(
      new Option("--expires-at <time>", "time at which the key expires (default: never)").argParser(futureTime),
    )
    .action((options: KeyOptions) => choose({ command: "key", options }))
}

function loginCommand(choose: Choose): Command {
  return new Command("login")
    .description(
      "Sign in at an OIDC issuer. The address to open is printed to standard error. The token, for the header " +
        "Authorization: Bearer, is printed to standard output.",
    )
    .addOption(new Option("--issuer <url>", "where").env("BERTH_OIDC_ISSUER").makeOptionMandatory().argParser(httpUrl))
    .addOption(new Option("--client-id <id>", "OAuth client id").env("BERTH_OIDC_CLIENT_ID").default(CLI_CLIENT_ID))
    .addOption(new Option("--resource <uri>", "resource that the token is for, if the issuer requires it (RFC 8707)"))
    .action((options: LoginOptions) => choose({ command: "login", options }))
}

function smokeCommand(choose: Choose): Command {
  const command = new Command("smoke")
    .description(`${SMOKE_SUMMARY} ${SMOKE_DETAILS}`)
    .addOption(new Option("--url <url>", "URL of a project").env("BERTH_URL").makeOptionMandatory().argParser(httpUrl))
    .addOption(
      new Option("--api-key <key>", "key with the role developer; other users can see a command line")
        .env("BERTH_API_KEY")
        .makeOptionMandatory(),
    )
  for (const flag of smokeFlags()) command.addOption(flag)
  return command.action((options: SmokeCommandOptions) => choose({ command: "smoke", options }))
}

function rotateCommand(choose: Choose): Command {
  return withClusterOptions(new Command("rotate-sealing-key"))
    .description(
      "Create a new key that encrypts the credentials of connections. The operator then encrypts all credentials with it " +
        "and deletes the old key when it is no longer in use.",
    )
    .action((options: RotateOptions) => choose({ command: "rotate-sealing-key", options }))
}

function withClusterOptions(command: Command): Command {
  return command
    .addOption(new Option("--kubeconfig <path>", "default: $KUBECONFIG, else ~/.kube/config, else in-cluster"))
    .addOption(
      new Option("--system-namespace <name>", "namespace of Launches and of Berth's own Secrets")
        .env("BERTH_SYSTEM_NAMESPACE")
        .default("berth-system"),
    )
}

function withKubeOptions(command: Command): Command {
  return withClusterOptions(command)
    .addOption(new Option("--watch-namespace <name>", "namespace to serve (default: all)").env("BERTH_WATCH_NAMESPACE"))
    .addOption(
      new Option("--metrics-port <number>", "separate port for /metrics, /livez and /readyz (default: not served)")
        .env("BERTH_METRICS_PORT")
        .argParser(port),
    )
    .addOption(
      new Option("--metrics-host <address>", "address of that port; empty: all IPv4 and IPv6 addresses")
        .env("BERTH_METRICS_HOST")
        .default("127.0.0.1"),
    )
    .addOption(
      new Option(
        "--identity-issuer <url>",
        "public URL of the façade, by which clouds verify Berth's identity tokens: connections then need no secret",
      )
        .env("BERTH_IDENTITY_ISSUER")
        .argParser(httpsUrl),
    )
    .addOption(
      new Option(
        "--project-limits <json>",
        `limits of what a project may store, such as {"unfinishedJobs":20000}: docs/limits.md`,
      )
        .env("BERTH_PROJECT_LIMITS")
        .argParser(projectLimits),
    )
    .addOption(
      new Option(
        "--caps <json>",
        `caps of the spending of all projects together, such as {"maxMonthlyUsd":5000}: docs/costs.md`,
      )
        .env("BERTH_CAPS")
        .argParser(spendCaps),
    )
    .addOption(
      new Option(
        "--private-receivers <list>",
        "receivers of webhooks outside of the internet: hosts, domains such as *.corp.example.com and networks such as 10.0.0.0/8, separated by commas: docs/webhooks.md",
      )
        .env("BERTH_PRIVATE_RECEIVERS")
        .argParser(privateReceivers),
    )
    .addOption(logLevelOption())
}

/** Commander's own result type is close to `any`. The options declared above define its content. */
function kubeOptions<T extends KubeOptions>(command: Command): T {
  return command.opts<T>()
}

function facadeOptions(command: Command): FacadeOptions {
  const { oidcIssuer, oidcAudience, oidcGroupsClaim, ...rest } = kubeOptions<
    FacadeOptions & OidcOptions & ConsoleFlags
  >(command)
  const { consoleClient, consoleAudience, options } = consoleClientOf(rest)
  if ((oidcIssuer === undefined) !== (oidcAudience === undefined)) {
    command.error(
      "--oidc-issuer requires --oidc-audience, and the reverse: without an audience, tokens of other services would be valid here",
    )
  }
  const fault = consoleClientFault(consoleClient)
  if (fault !== undefined) command.error(fault)
  if (oidcIssuer === undefined || oidcAudience === undefined) return options
  const issuer = { issuer: oidcIssuer, audience: oidcAudience, groupsClaim: oidcGroupsClaim }
  return { ...options, consoleClient, issuer: { ...issuer, ...defined({ consoleAudience }) } }
}

interface OidcOptions {
  oidcIssuer?: string
  oidcAudience?: string
  oidcGroupsClaim: string
}

interface ConsoleFlags {
  oidcConsoleClientId?: string
  oidcConsoleAudience?: string
  oidcConsoleScopes?: string
  oidcConsoleSecretFile?: string
  oidcConsoleExchange?: (typeof EXCHANGES)[number]
}

/** Takes the options of the console's client out of the others. */
function consoleClientOf<Options extends ConsoleFlags>(given: Options) {
  const {
    oidcConsoleClientId: clientId,
    oidcConsoleAudience: consoleAudience,
    oidcConsoleScopes: scopes,
    oidcConsoleSecretFile: secretFile,
    oidcConsoleExchange: exchange = secretFile === undefined ? "browser" : "facade",
    ...options
  } = given
  const own = { ...defined({ clientId, scopes }) }
  const consoleClient: ConsoleClientOptions = { ...own, ...defined({ secretFile }), exchange }
  return { consoleClient, consoleAudience, options }
}

function consoleClientFault({ clientId, secretFile, exchange }: ConsoleClientOptions): string | undefined {
  if (secretFile === undefined) return undefined
  if (clientId === undefined)
    return "--oidc-console-secret-file requires --oidc-console-client-id: the client of command lines has no secret"
  if (exchange !== "facade")
    return "--oidc-console-secret-file requires --oidc-console-exchange facade: a browser can't keep the secret"
  return undefined
}

export function runtimeOption(): Option {
  return new Option("--runtime <name>", "container runtime of the local cloud")
    .env("BERTH_RUNTIME")
    .choices(RUNTIME_CHOICES)
    .default("auto")
}

export function dockerSocketOption(): Option {
  return new Option("--docker-socket <path>", "socket of the Docker engine, a path or unix://<path>")
    .env("DOCKER_HOST")
    .argParser(socketPath)
}

export function logLevelOption(): Option {
  return new Option("--log-level <level>", "lowest level that is logged")
    .env("BERTH_LOG_LEVEL")
    .choices(LOG_LEVELS)
    .default("info")
}

export function portOption(description = "port to listen on"): Option {
  return new Option("--port <number>", description).env("BERTH_PORT").default(8080).argParser(port)
}

/** Parses trusted proxies. Express takes any other value for "all", which would let every client choose its address. */
function proxies(text: string): string | number {
  if (/^[1-9]$/.test(text)) return Number(text)
  const networks = text.split(",").map((network) => network.trim())
  if (networks.every((network) => PROXY_NAMES.includes(network) || isAddress(network))) return networks.join(",")
  throw new InvalidArgumentError(
    `"${text}" is neither a number from 1 to 9 nor addresses or networks such as 10.0.0.0/8.`,
  )
}

const HOST = /^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/

/** Parses the receivers of webhooks that have no public address. An address is a network of one. */
function privateReceivers(text: string): PrivateTargets {
  const targets = text.split(",").map((target) => target.trim().toLowerCase())
  const wrong = targets.find((target) => !isAddress(target) && !HOST.test(target))
  if (wrong !== undefined) {
    throw new InvalidArgumentError(
      `"${wrong}" is neither a host, a domain such as *.corp.example.com nor a network such as 10.0.0.0/8.`,
    )
  }
  const widths = { 4: "32", 6: "128" }
  const networks = targets.filter(isAddress).map((network) => {
    const [address = "", bits = widths[isIP(address) === 4 ? 4 : 6]] = network.split("/")
    return `${address}/${bits}`
  })
  return { hosts: targets.filter((target) => !isAddress(target)), networks }
}

/** Express's names of groups of addresses. */
const PROXY_NAMES = ["loopback", "linklocal", "uniquelocal"]

function isAddress(network: string): boolean {
  const [address = "", bits, ...more] = network.split("/")
  const family = isIP(address)
  if (family === 0 || more.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128))
}

export function absolute(path: string): string {
  return resolve(path)
}

function port(text: string): number {
  const number = Number(text)
  if (/^\d+$/.test(text) && number <= 65_535) return number
  throw new InvalidArgumentError(`"${text}" is not a port: give a number from 0 (any free one) to 65535.`)
}

function seconds(text: string): number {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text)
  throw new InvalidArgumentError(`"${text}" is not a number of seconds: give a whole number from 1 to 9999.`)
}

function hours(text: string): number {
  if (/^\d{1,4}$/.test(text)) return Number(text)
  throw new InvalidArgumentError(`"${text}" is not a number of hours: give a whole number, 0 for never.`)
}

function count(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text)
  throw new InvalidArgumentError(`"${text}" is not a number of requests: give a whole number, at least 0.`)
}

function mebibytes(text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text)
  throw new InvalidArgumentError(`"${text}" is not a number of MiB: give a whole number from 1 to 999999.`)
}

/** Parses DOCKER_HOST. Only local sockets are useful: a remote engine does not run containers on this VM. */
function socketPath(text: string): string {
  const path = text.replace(/^unix:\/\//, "")
  if (path.startsWith("/")) return path
  throw new InvalidArgumentError(
    `"${text}" is not a socket of this machine: give an absolute path, such as /var/run/docker.sock, ` +
      "or unix:///var/run/docker.sock. Engines at tcp:// and ssh:// addresses can't be used.",
  )
}

/** Parses scopes of RFC 6749, separated by spaces. */
function scopes(text: string): string {
  if (/^[!#-[\]-~]+( [!#-[\]-~]+)*$/.test(text)) return text
  throw new InvalidArgumentError(`"${text}" is no list of scopes: separate them by one space, as in "openid email".`)
}

function trueOrFalse(text: string): boolean {
  if (text === "true" || text === "false") return text === "true"
  throw new InvalidArgumentError(`"${text}" is not true or false.`)
}

function httpUrl(text: string): string {
  if (/^https?:$/.test(URL.parse(text)?.protocol ?? "")) return text.replace(/\/+$/, "")
  throw new InvalidArgumentError(`"${text}" is not an http or https URL.`)
}

function httpsUrl(text: string): string {
  if (URL.parse(text)?.protocol === "https:") return text.replace(/\/+$/, "")
  throw new InvalidArgumentError(`"${text}" is not an https URL: clouds read the issuer's keys only by https.`)
}

/** Parses a cloud's networks by region. */
function networks<T extends TSchema>(
  text: string,
  schema: T,
  { isRegion, example }: { isRegion: RegExp; example: string },
): Static<T> {
  const value = jsonOf(text)
  const errors = errorsOf(schema, value)
  for (const region of errors.length === 0 ? Object.keys(value as object) : []) {
    if (!isRegion.test(region))
      errors.push({ pointer: `/${region}`, detail: `not a region of this cloud, such as ${example}` })
  }
  if (errors.length === 0) return value as Static<T>
  throw new InvalidArgumentError(errors.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; "))
}

function projectLimits(text: string): Partial<ProjectLimits> {
  const value = jsonOf(text)
  const errors = errorsOf(Type.Partial(ProjectLimitsSchema), value)
  if (errors.length === 0) return value as Partial<ProjectLimits>
  throw new InvalidArgumentError(errors.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; "))
}

/** Returns the proxy, or what is wrong with the text, without a part of the text. */
function vmProxyIn(text: string): VmProxy | string {
  const value = parsedOrUndefined(text)
  if (value === undefined) return `give JSON, such as {"url":"http://proxy.example.com:3128"}`
  const errors = errorsOf(VmProxySchema, value)
  if (errors.length === 0) return value as VmProxy
  return `${errors.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; ")}. The user data of VMs has it, so it has no password`
}

function parsedOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's message would quote the text.
    return undefined
  }
}

/** Reads a PEM file. Each VM's user data has it, so only certificates are allowed. */
function certificates(path: string): string {
  const pem = textOf(path)
  const found = pem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? []
  if (found.length > 0 && !pem.includes("PRIVATE KEY")) return `${found.join("\n")}\n`
  throw new InvalidArgumentError(`${path} is no file of certificates in PEM: give the authority's certificate only.`)
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8")
  } catch (error) {
    throw new InvalidArgumentError(`the file can't be read: ${error instanceof Error ? error.message : String(error)}.`)
  }
}

/** Returns the proxies of this process. @throws RangeError for a URL that is none */
export function proxyInEnvironment(): ProxySettings | undefined {
  return proxySettings(process.env)
}

function spendCaps(text: string): SpendCaps {
  const value = jsonOf(text)
  const errors = errorsOf(SpendCapsSchema, value)
  if (errors.length === 0) return value as SpendCaps
  throw new InvalidArgumentError(errors.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; "))
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new InvalidArgumentError(`not valid JSON: ${error instanceof Error ? error.message : String(error)}.`)
  }
}

function keyName(text: string): string {
  const metadataName = toMetadataName(text)
  if (metadataName !== undefined && metadataName.length <= LIMITS.keyName) return text
  throw new InvalidArgumentError(`"${text}" is not allowed as a key's name: use at most 50 letters, digits, - and _.`)
}

function futureTime(text: string): string {
  const time = new Date(text)
  const hasOffset = /T.*(Z|[+-]\d{2}:\d{2})$/.test(text)
  if (hasOffset && time.getTime() > Date.now()) return time.toISOString().replace(/[.]000Z$/, "Z")
  throw new InvalidArgumentError(`"${text}" is not a future time, such as 2031-01-31T12:00:00Z.`)
}
