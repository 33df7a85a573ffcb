import { isIP } from "node:net"
import { resolve } from "node:path"
import { Command, InvalidArgumentError, Option } from "commander"
import Type, { type Static, type TSchema } from "typebox"
import { ROLES, type Role } from "./apis/apikey.ts"
import { LIMITS } from "./apis/limits.ts"
import { toMetadataName } from "./apis/names.ts"
import { faultsOf } from "./apis/validate.ts"
import type { TrustedIssuer } from "./identity/oidc.ts"

/** What every program that talks to a kube-apiserver is told. */
export interface KubeOptions {
  /** Path of a kubeconfig; without one, client-node's order holds: $KUBECONFIG, ~/.kube/config, in-cluster. */
  kubeconfig?: string
  /** Where Launches and Berth's own Secrets live. */
  systemNamespace: string
  /** Only Jobs of this namespace are served; absent: of all. */
  watchNamespace?: string
  /** Where /metrics, /livez and /readyz are served, apart from everything else; absent: nowhere. */
  metricsPort?: number
  /** Address of that port; default: this machine's own alone; empty: all. */
  metricsHost?: string
  logLevel: LogLevel
}

export interface OperatorOptions extends KubeOptions {
  /** Where agents reach the gateway. */
  gatewayUrl: string
  /** Berth's own image, which VMs of public clouds run the agent from. */
  agentImage?: string
  /** By region, where VMs on AWS are in the network; default: in the account's default VPC. */
  awsNetworks?: AwsNetworks
  /** By region, where VMs on Google Cloud are in the network; default: in the project's network `default`. */
  gcpNetworks?: GcpNetworks
  /** Hours between two looks at clouds' price lists; 0 or absent: never. */
  priceRefreshHours?: number
  /** The same of spot prices that change from hour to hour. */
  spotPriceRefreshHours?: number
}

/** How often prices are asked for where nobody says otherwise, hours. */
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

/** Names, as Compute Engine has them. */
const GcpName = Type.String({ pattern: "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$" })

const GcpNetworksSchema = Type.Record(
  Type.String(),
  Type.Object({ network: Type.Optional(GcpName), subnetwork: Type.Optional(GcpName) }),
)
type GcpNetworks = Static<typeof GcpNetworksSchema>

export interface FacadeOptions extends KubeOptions {
  /** The operator's, for dry runs: jobs are planned for what it runs on. */
  agentImage?: string
  /** Address to listen on; empty: all. */
  host: string
  port: number
  /** Projects are the host names one label below it. */
  baseDomain: string
  /** Project of hosts without a project label, such as localhost. */
  defaultProject?: string
  /** Where logs are kept: a folder, for one replica … */
  logsDir?: string
  /** … or a bucket. */
  logsBucket?: string
  logsPrefix?: string
  logsEndpoint?: string
  logsRegion?: string
  /** Per caller, on each replica; 0: any number. */
  requestsPerMinute?: number
  /** The same of discovery, which has a limit of its own. */
  discoveriesPerMinute?: number
  /** Failed authentications from one address, on each replica; 0: any number. */
  failuresPerMinute?: number
  /** The proxies whose X-Forwarded-* headers are believed: addresses or networks, or how many there are on the way. */
  trustProxy?: string | number
  /** Whose tokens people sign in with; absent: nobody does. */
  issuer?: TrustedIssuer
}

export interface AgentOptions {
  dataDir: string
  runtime: RuntimeChoice
  /** From SIGTERM to the agent's end at most; absent: as long as uploads may take. */
  shutdownSeconds?: number
  /** Path of the Docker engine's socket; default: Docker's own. */
  dockerSocket?: string
  logLevel: LogLevel
}

/** What runs the containers of the local cloud. `auto` takes Docker when an engine answers. */
export const RUNTIME_CHOICES = ["auto", "docker", "process"] as const
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number]

/** A key that is to be declared by a manifest. */
export interface KeyOptions {
  name: string
  role: Role
  namespace?: string
  /** RFC 3339, in UTC. */
  expiresAt?: string
}

/** Where a person signs in. */
export interface LoginOptions {
  issuer: string
  clientId: string
  resource?: string
}

/** Whose sealing key is to be replaced. */
export type RotateOptions = Pick<KubeOptions, "kubeconfig" | "systemNamespace">

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** What the command line asks for. */
export type Invocation =
  | { command: "operator"; options: OperatorOptions }
  | { command: "facade"; options: FacadeOptions }
  | { command: "agent"; options: AgentOptions }
  | { command: "key"; options: KeyOptions }
  | { command: "login"; options: LoginOptions }
  | { command: "rotate-sealing-key"; options: RotateOptions }

/**
 * Reads the command line and the environment, the only place that does. Prints help, the version or what is
 * wrong and ends the process when there is nothing to run.
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
    .addCommand(rotateCommand(chosen))
  await program.parseAsync(argv)
  if (invocation === undefined) return program.help({ error: true })
  return invocation
}

type Choose = (invocation: Invocation) => void

function operatorCommand(choose: Choose): Command {
  return withKubeOptions(new Command("operator"))
    .description("Run the loops that bring jobs to VMs (one at a time leads).")
    .addOption(
      new Option("--gateway-url <url>", "where agents reach the gateway")
        .env("BERTH_GATEWAY_URL")
        .makeOptionMandatory()
        .argParser(httpUrl),
    )
    .addOption(
      new Option("--agent-image <image>", "Berth's own image, which VMs of public clouds run the agent from")
        .env("BERTH_AGENT_IMAGE")
        .makeOptionMandatory(),
    )
    .addOption(
      new Option("--aws-networks <json>", "by region, subnets and security groups of VMs on AWS: docs/aws.md")
        .env("BERTH_AWS_NETWORKS")
        .argParser((text) => networks(text, AwsNetworksSchema, { isRegion: AWS_REGION, example: "eu-central-1" })),
    )
    .addOption(
      new Option("--gcp-networks <json>", "by region, network and subnetwork of VMs on Google Cloud: docs/gcp.md")
        .env("BERTH_GCP_NETWORKS")
        .argParser((text) => networks(text, GcpNetworksSchema, { isRegion: GCP_REGION, example: "europe-west1" })),
    )
    .addOption(
      new Option("--price-refresh-hours <number>", "how often clouds are asked for their prices; 0: never")
        .env("BERTH_PRICE_REFRESH_HOURS")
        .default(PRICE_REFRESH_HOURS.list)
        .argParser(hours),
    )
    .addOption(
      new Option("--spot-price-refresh-hours <number>", "the same for spot prices that change from hour to hour")
        .env("BERTH_SPOT_PRICE_REFRESH_HOURS")
        .default(PRICE_REFRESH_HOURS.market)
        .argParser(hours),
    )
    .action((_, command: Command) => choose({ command: "operator", options: kubeOptions(command) }))
}

function facadeCommand(choose: Choose): Command {
  return withLimitOptions(withLogOptions(withKubeOptions(new Command("facade"))))
    .description("Serve the REST API and the agents' gateway (any number of replicas).")
    .addOption(
      new Option("--host <address>", "address to listen on; empty: all, of IPv4 and IPv6")
        .env("BERTH_HOST")
        .default("127.0.0.1"),
    )
    .addOption(portOption())
    .addOption(
      new Option("--base-domain <domain>", "projects are its subdomains").env("BERTH_BASE_DOMAIN").default("localhost"),
    )
    .addOption(
      new Option("--agent-image <image>", "the operator's, so that dry runs plan as it would").env("BERTH_AGENT_IMAGE"),
    )
    .addOption(
      new Option("--default-project <name>", "project of hosts without a project label").env("BERTH_DEFAULT_PROJECT"),
    )
    .addOption(new Option("--oidc-issuer <url>", "whose tokens people sign in with").env("BERTH_OIDC_ISSUER"))
    .addOption(
      new Option("--oidc-audience <name>", "what such tokens are for, as their aud says").env("BERTH_OIDC_AUDIENCE"),
    )
    .addOption(
      new Option("--oidc-groups-claim <name>", "which of their claims has a person's groups")
        .env("BERTH_OIDC_GROUPS_CLAIM")
        .default("groups"),
    )
    .action((_, command: Command) => choose({ command: "facade", options: facadeOptions(command) }))
}

/** Where the logs of jobs are kept. */
function withLogOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--logs-dir <path>", "where the logs of jobs are kept")
        .env("BERTH_LOGS_DIR")
        .conflicts("logsBucket")
        .argParser(absolute),
    )
    .addOption(
      new Option("--logs-bucket <name>", "or: the S3 bucket where they are kept, as several replicas need it").env(
        "BERTH_LOGS_BUCKET",
      ),
    )
    .addOption(
      new Option("--logs-prefix <prefix>", "before the names of all objects in that bucket").env("BERTH_LOGS_PREFIX"),
    )
    .addOption(
      new Option("--logs-endpoint <url>", "of a store with S3's API that is not AWS'")
        .env("BERTH_LOGS_ENDPOINT")
        .argParser(httpUrl),
    )
    .addOption(new Option("--logs-region <name>", "of that bucket; default: $AWS_REGION").env("BERTH_LOGS_REGION"))
}

/** How much of a caller is taken, and how callers are told apart. */
function withLimitOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--requests-per-minute <number>", "most of one caller, on each replica; 0: any number (default: 600)")
        .env("BERTH_REQUESTS_PER_MINUTE")
        .argParser(count),
    )
    .addOption(
      new Option("--discoveries-per-minute <number>", "the same of discovery, a limit of its own (default: 30)")
        .env("BERTH_DISCOVERIES_PER_MINUTE")
        .argParser(count),
    )
    .addOption(
      new Option(
        "--failures-per-minute <number>",
        "failed authentications from one address; 0: any number (default: 60)",
      )
        .env("BERTH_FAILURES_PER_MINUTE")
        .argParser(count),
    )
    .addOption(
      new Option(
        "--trust-proxy <which>",
        "proxies in front whose X-Forwarded-* headers are believed: their addresses or networks, or their number " +
          "(default: none; then the address of all clients is the proxy's)",
      )
        .env("BERTH_TRUST_PROXY")
        .argParser(proxies),
    )
}

function agentCommand(choose: Choose): Command {
  return new Command("agent")
    .description("Run one job's container and report; the program of a VM.")
    .addOption(
      new Option("--data-dir <path>", "where user-data.json is and the state is kept")
        .env("BERTH_DATA_DIR")
        .makeOptionMandatory()
        .argParser(absolute),
    )
    .addOption(runtimeOption())
    .addOption(dockerSocketOption())
    .addOption(
      new Option(
        "--shutdown-seconds <number>",
        "from SIGTERM to the agent's end at most (default: as long as uploads may take)",
      ).argParser(seconds),
    )
    .addOption(logLevelOption())
    .action((options: AgentOptions) => choose({ command: "agent", options }))
}

function keyCommand(choose: Choose): Command {
  return new Command("key")
    .description(
      "Make an API key for GitOps: its value goes to standard error, for its owner, and the manifest, which has only " +
        "the value's hash, to standard output. Nothing is written anywhere else.",
    )
    .addOption(new Option("--name <name>", "unique in the project").makeOptionMandatory().argParser(keyName))
    .addOption(new Option("--role <role>", "what the key may do").makeOptionMandatory().choices(ROLES))
    .addOption(new Option("--namespace <name>", "the project's; default: where the manifest is applied"))
    .addOption(new Option("--expires-at <time>", "when the key stops working (default: never)").argParser(futureTime))
    .action((options: KeyOptions) => choose({ command: "key", options }))
}

function loginCommand(choose: Choose): Command {
  return new Command("login")
    .description(
      "Sign in at an OIDC issuer: where to go is said on standard error, the token, which is good for " +
        "Authorization: Bearer, goes to standard output.",
    )
    .addOption(new Option("--issuer <url>", "where").env("BERTH_OIDC_ISSUER").makeOptionMandatory().argParser(httpUrl))
    .addOption(new Option("--client-id <id>", "as which program").env("BERTH_OIDC_CLIENT_ID").default("berth-cli"))
    .addOption(new Option("--resource <uri>", "what the token shall be for, where the issuer wants to be told"))
    .action((options: LoginOptions) => choose({ command: "login", options }))
}

function rotateCommand(choose: Choose): Command {
  return withClusterOptions(new Command("rotate-sealing-key"))
    .description(
      "Make a new key that the credentials of connections are sealed under. The operator then seals all of them anew " +
        "and deletes the former key when nothing needs it any more.",
    )
    .action((options: RotateOptions) => choose({ command: "rotate-sealing-key", options }))
}

function withClusterOptions(command: Command): Command {
  return command
    .addOption(new Option("--kubeconfig <path>", "default: $KUBECONFIG, else ~/.kube/config, else in-cluster"))
    .addOption(
      new Option("--system-namespace <name>", "where Launches and Berth's own Secrets live")
        .env("BERTH_SYSTEM_NAMESPACE")
        .default("berth-system"),
    )
}

function withKubeOptions(command: Command): Command {
  return withClusterOptions(command)
    .addOption(
      new Option("--watch-namespace <name>", "serve only this one (default: all)").env("BERTH_WATCH_NAMESPACE"),
    )
    .addOption(
      new Option("--metrics-port <number>", "port of its own for /metrics, /livez and /readyz (default: not served)")
        .env("BERTH_METRICS_PORT")
        .argParser(port),
    )
    .addOption(
      new Option("--metrics-host <address>", "address of that port; empty: all, of IPv4 and IPv6")
        .env("BERTH_METRICS_HOST")
        .default("127.0.0.1"),
    )
    .addOption(logLevelOption())
}

/** Commander's own result type is `any`-like by design; the options declared above are what it holds. */
function kubeOptions<T extends KubeOptions>(command: Command): T {
  return command.opts<T>()
}

function facadeOptions(command: Command): FacadeOptions {
  const { oidcIssuer, oidcAudience, oidcGroupsClaim, ...options } = kubeOptions<FacadeOptions & OidcOptions>(command)
  if ((oidcIssuer === undefined) !== (oidcAudience === undefined)) {
    command.error("--oidc-issuer and --oidc-audience belong together: a token for another service must not be taken")
  }
  if (oidcIssuer === undefined || oidcAudience === undefined) return options
  return { ...options, issuer: { issuer: oidcIssuer, audience: oidcAudience, groupsClaim: oidcGroupsClaim } }
}

interface OidcOptions {
  oidcIssuer?: string
  oidcAudience?: string
  oidcGroupsClaim: string
}

export function runtimeOption(): Option {
  return new Option("--runtime <name>", "what runs containers on the local cloud")
    .env("BERTH_RUNTIME")
    .choices(RUNTIME_CHOICES)
    .default("auto")
}

export function dockerSocketOption(): Option {
  return new Option("--docker-socket <path>", "socket of the Docker engine").env("DOCKER_HOST").argParser(socketPath)
}

export function logLevelOption(): Option {
  return new Option("--log-level <level>", "least level that is logged")
    .env("BERTH_LOG_LEVEL")
    .choices(LOG_LEVELS)
    .default("info")
}

export function portOption(description = "port to listen on"): Option {
  return new Option("--port <number>", description).env("BERTH_PORT").default(8080).argParser(port)
}

/** Express takes anything else for "all", which would let every client choose its address. */
function proxies(text: string): string | number {
  if (/^[1-9]$/.test(text)) return Number(text)
  const networks = text.split(",").map((network) => network.trim())
  if (networks.every((network) => PROXY_NAMES.includes(network) || isAddress(network))) return networks.join(",")
  throw new InvalidArgumentError(
    `"${text}" is neither a number from 1 to 9 nor addresses or networks such as 10.0.0.0/8.`,
  )
}

/** Express's words for groups of addresses. */
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

/** DOCKER_HOST is a URL, of which only local sockets are of use: a container elsewhere is not on this VM. */
function socketPath(text: string): string {
  const path = text.replace(/^unix:\/\//, "")
  if (path.startsWith("/")) return path
  throw new InvalidArgumentError(`"${text}" is no local socket: give its path, such as /var/run/docker.sock.`)
}

function httpUrl(text: string): string {
  if (/^https?:$/.test(URL.parse(text)?.protocol ?? "")) return text.replace(/\/+$/, "")
  throw new InvalidArgumentError(`"${text}" is not an http or https URL.`)
}

/** A cloud's networks by its regions. */
function networks<T extends TSchema>(
  text: string,
  schema: T,
  { isRegion, example }: { isRegion: RegExp; example: string },
): Static<T> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new InvalidArgumentError(`it is no JSON: ${error instanceof Error ? error.message : String(error)}.`)
  }
  const faults = faultsOf(schema, value)
  for (const region of faults.length === 0 ? Object.keys(value as object) : []) {
    if (!isRegion.test(region))
      faults.push({ pointer: `/${region}`, detail: `no region of this cloud, such as ${example}` })
  }
  if (faults.length === 0) return value as Static<T>
  throw new InvalidArgumentError(faults.map(({ pointer, detail }) => `${pointer}: ${detail}`).join("; "))
}

function keyName(text: string): string {
  const metadataName = toMetadataName(text)
  if (metadataName !== undefined && metadataName.length <= LIMITS.keyName) return text
  throw new InvalidArgumentError(`"${text}" can't be a key's name: take letters, digits, - and _, at most 50.`)
}

function futureTime(text: string): string {
  const time = new Date(text)
  const hasOffset = /T.*(Z|[+-]\d{2}:\d{2})$/.test(text)
  if (hasOffset && time.getTime() > Date.now()) return time.toISOString().replace(/[.]000Z$/, "Z")
  throw new InvalidArgumentError(`"${text}" is not a time to come, such as 2031-01-31T12:00:00Z.`)
}
