import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { JOB_CLOUDS } from "./clouds/definitions.ts"
import { createClouds } from "./clouds/provider.ts"
import { systemClock } from "./core/apis/clock.ts"
import { defined } from "./core/apis/defined.ts"
import type { Architecture } from "./core/apis/offer.ts"
import { useProxy } from "./core/apis/proxy.ts"
import type { KubeClient } from "./core/kube/client.ts"
import { REFUSED_EXIT_CODE } from "./core/machines/commands.ts"
import { publicFetch } from "./core/outbound/public-fetch.ts"
import { packageVersion } from "./core/package.ts"
import { createLogger } from "./core/telemetry/logger.ts"
import { buildOffers } from "./market/catalogue/file.ts"
import { LiveCatalogue } from "./market/catalogue/live.ts"
import { readPriceList } from "./market/catalogue/shipped.ts"
import {
  type AgentOptions,
  type FacadeOptions,
  type HostOptions,
  type Invocation,
  type KeyOptions,
  type KubeOptions,
  type LoginOptions,
  type OperatorOptions,
  proxyInEnvironment,
  type RotateOptions,
  readInvocation,
  type SmokeCommandOptions,
} from "./options.ts"
import { runProcess } from "./process.ts"

const invocation = await readInvocation(process.argv, packageVersion())
const { command } = invocation
await runProcess({ command, hasOwnLimits: ["agent", "host", "smoke"].includes(command) }, (stopSignal) => {
  useProxy(proxyInEnvironment())
  return run(invocation, stopSignal)
})

/**
 * Runs one program. Each is imported only when it runs: an agent needs no REST API, the REST API no cloud.
 * Process 1 of a container has no default action for signals, so each program listens from the start.
 */
async function run({ command, options }: Invocation, stopSignal: () => AbortSignal): Promise<number> {
  switch (command) {
    case "agent":
      return runVm(options, stopSignal())
    case "host":
      return joinAsMachine(options, stopSignal())
    case "operator":
      return runOperator(options, stopSignal())
    case "facade":
      return runFacade(options, stopSignal())
    case "key":
      return printKey(options)
    case "login":
      return printToken(options, stopSignal())
    case "smoke":
      return runSmokeTest(options, stopSignal())
    case "rotate-sealing-key":
      return rotateKey(options)
  }
}

async function runVm(options: AgentOptions, signal: AbortSignal): Promise<number> {
  const { dataDir, runtime, dockerSocket, shutdownSeconds, logLevel } = options
  const { runAgent } = await import("./agent/main.ts")
  const logger = createLogger({ level: logLevel, name: "agent" })
  const userData = await readFile(join(dataDir, "user-data.json"), "utf8")
  const exit = await runAgent({
    dataDir,
    userData,
    signal,
    logger,
    ...(runtime !== "auto" && { runtime }),
    ...defined({ dockerSocket, shutdownSeconds }),
  })
  logger.info({ cause: exit.cause }, "powering off")
  // A hanging operation, such as a Docker engine that does not answer, must not keep the VM running.
  process.exit(0)
}

async function joinAsMachine(options: HostOptions, signal: AbortSignal): Promise<number> {
  const { gateway: gatewayUrl, gatewayCa, token, dockerSocket, dataDir, runtime, logLevel } = options
  const { runHost } = await import("./agent/host/main.ts")
  const { endRestarts } = await import("./agent/host/restarts.ts")
  const logger = createLogger({ level: logLevel, name: "host" })
  const gateway = { gatewayUrl, ...defined({ gatewayCa }) }
  const exit = await runHost({ gateway, dataDir, runtime, logger, signal, ...defined({ token, dockerSocket }) })
  if (exit.cause === "refused") {
    console.error(exit.message)
    await endRestarts({ logger, signal, ...defined({ dockerSocket }) })
  }
  // A hanging operation must not keep an agent that has nothing more to do.
  process.exit(exit.cause === "refused" ? REFUSED_EXIT_CODE : 0)
}

/** Returns the price list and image assumptions of operator and REST API. */
function shippedMarket() {
  const architectures: Architecture[] = ["amd64"]
  const askRegistries = publicFetch()
  return { offers: new LiveCatalogue(buildOffers(readPriceList())), ownAccounts: [], architectures, askRegistries }
}

async function runOperator(options: OperatorOptions, signal: AbortSignal): Promise<number> {
  const { connect } = await import("./connect.ts")
  const { startOperator } = await import("./operator/main.ts")
  const { loadProviders } = await import("./clouds/registry.ts")
  const logger = createLogger({ level: options.logLevel, name: "operator" })
  const client = connect(options)
  const identity = await identityIssuer(options, client)
  const providers = await loadProviders({ ...options, ...(identity && { tokens: identity }) })
  const parts = {
    client,
    clouds: createClouds({}),
    providers,
    ...(identity && { identity }),
    ...shippedMarket(),
    logger,
  }
  await (await startOperator(options, parts, signal)).ended
  await client.close()
  return 0
}

async function identityIssuer({ identityIssuer: issuer, systemNamespace }: KubeOptions, client: KubeClient) {
  if (issuer === undefined) return undefined
  const { IdentityIssuer } = await import("./core/identity/identity-tokens.ts")
  return new IdentityIssuer({ client, systemNamespace, issuer, clock: systemClock })
}

async function runFacade(options: FacadeOptions, signal: AbortSignal): Promise<number> {
  const { connect } = await import("./connect.ts")
  const { startFacade } = await import("./api/main.ts")
  const { loadProviders } = await import("./clouds/registry.ts")
  const logger = createLogger({ level: options.logLevel, name: "facade" })
  const client = connect(options)
  const identity = await identityIssuer(options, client)
  const signIn = identity && { identity }
  const providers = await loadProviders(identity && { tokens: identity })
  const parts = { client, clouds: JOB_CLOUDS, providers, ...signIn, ...shippedMarket(), logger }
  const { url, ended } = await startFacade(options, parts, signal)
  logger.info({ url }, "listening")
  await ended
  await client.close()
  return 0
}

/** Prints value and manifest to separate streams, so that `berth key … > key.yaml` writes no secret to a repository. */
async function printKey(options: KeyOptions): Promise<number> {
  const { declareKey } = await import("./core/identity/key-manifest.ts")
  const { value, manifest } = declareKey(options)
  process.stdout.write(manifest)
  process.stderr.write(`# Value of the key. It is shown once and not stored.\n${value}\n`)
  return 0
}

/** Prints only the token to standard output, for `TOKEN=$(berth login)`. */
async function printToken(options: LoginOptions, signal: AbortSignal): Promise<number> {
  const { login, userIdIn } = await import("./core/identity/login.ts")
  const prompt = (address: string, code: string): void => {
    process.stderr.write(`Open ${address} and confirm if it shows the code ${code}.\n`)
  }
  const token = await login({ ...options, signal, prompt })
  const userId = userIdIn(token)
  if (userId !== undefined) process.stderr.write(`Your user ID is ${userId}. Others need it to invite you.\n`)
  process.stdout.write(`${token}\n`)
  return 0
}

/** Prints progress and the question to standard error, so that the report can be saved. */
async function runSmokeTest(
  { only: kinds, yes, url, apiKey, ...options }: SmokeCommandOptions,
  signal: AbortSignal,
): Promise<number> {
  const { runSmoke } = await import("./smoke/smoke.ts")
  const { requestsWithKey } = await import("./smoke/requests.ts")
  const { createInterface } = await import("node:readline/promises")
  const isPassed = await runSmoke(
    { ...options, kinds, version: packageVersion(), send: requestsWithKey({ url, apiKey }) },
    {
      progress: (line) => void process.stderr.write(`${line}\n`),
      report: (markdown) => void process.stdout.write(markdown),
      confirm: async (question) => {
        if (yes === true) return true
        if (!process.stdin.isTTY) throw new Error(`${question} There is no terminal to ask: give --yes.`)
        const terminal = createInterface({ input: process.stdin, output: process.stderr })
        const answer = await terminal.question(`${question} [y/N] `, { signal }).finally(() => terminal.close())
        return /^y(es)?$/i.test(answer.trim())
      },
    },
    signal,
  )
  return isPassed ? 0 : 1
}

async function rotateKey(options: RotateOptions): Promise<number> {
  const { connect } = await import("./connect.ts")
  const { rotateSealingKey } = await import("./core/identity/sealing-keys.ts")
  const client = connect(options)
  const { before, now } = await rotateSealingKey(client, options.systemNamespace).finally(() => client.close())
  process.stdout.write(`New credentials are encrypted with the key ${now}. It replaces ${before}.\n`)
  return 0
}
