import { readFile } from "node:fs/promises"
import { join } from "node:path"
import type { Architecture } from "./apis/offer.ts"
import { offersOf } from "./catalogue/file.ts"
import { LiveCatalogue } from "./catalogue/live.ts"
import { readPriceList } from "./catalogue/shipped.ts"
import { cloudsOf } from "./cloud/clouds.ts"
import {
  type AgentOptions,
  type FacadeOptions,
  type Invocation,
  type KeyOptions,
  type LoginOptions,
  type OperatorOptions,
  type RotateOptions,
  readInvocation,
} from "./options.ts"
import { packageFile } from "./package.ts"
import { runProcess } from "./process.ts"
import { publicFetch } from "./registries/public-fetch.ts"
import { createLogger } from "./telemetry/logger.ts"

const invocation = await readInvocation(process.argv, await version())
const { command } = invocation
await runProcess({ command, hasOwnLimits: command === "agent" }, (stopSignal) => run(invocation, stopSignal))

/**
 * Each program is imported only when it is the one asked for: an agent needs no façade, a façade no cloud. As process 1 of
 * a container a program has no default action for signals, so each listens from the first.
 */
async function run({ command, options }: Invocation, stopSignal: () => AbortSignal): Promise<number> {
  switch (command) {
    case "agent":
      return runVm(options, stopSignal())
    case "operator":
      return runOperator(options, stopSignal())
    case "facade":
      return runFacade(options, stopSignal())
    case "key":
      return printKey(options)
    case "login":
      return printToken(options, stopSignal())
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
    ...(dockerSocket !== undefined && { dockerSocket }),
    ...(shutdownSeconds !== undefined && { shutdownSeconds }),
  })
  logger.info({ cause: exit.cause }, "powering off")
  // Whatever still hangs (an engine that doesn't answer) must not keep the VM on.
  process.exit(0)
}

/** What operator and façade route by: the price list that ships, and images as most of them are built. */
function shippedMarket() {
  const architectures: Architecture[] = ["amd64"]
  const askRegistries = publicFetch()
  return { offers: new LiveCatalogue(offersOf(readPriceList())), ownAccounts: [], architectures, askRegistries }
}

async function runOperator(options: OperatorOptions, signal: AbortSignal): Promise<number> {
  const { connect } = await import("./connect.ts")
  const { startOperator } = await import("./operator.ts")
  const { providersOf } = await import("./providers.ts")
  const logger = createLogger({ level: options.logLevel, name: "operator" })
  const client = connect(options)
  const parts = { client, clouds: cloudsOf({}), providers: providersOf(options), ...shippedMarket(), logger }
  await (await startOperator(options, parts, signal)).ended
  await client.close()
  return 0
}

async function runFacade(options: FacadeOptions, signal: AbortSignal): Promise<number> {
  const { connect } = await import("./connect.ts")
  const { startFacade } = await import("./api-server.ts")
  const { providersOf } = await import("./providers.ts")
  const logger = createLogger({ level: options.logLevel, name: "facade" })
  const client = connect(options)
  const parts = { client, clouds: ["aws", "gcp", "azure"], providers: providersOf(), ...shippedMarket(), logger }
  const { url, ended } = await startFacade(options, parts, signal)
  logger.info({ url }, "listening")
  await ended
  await client.close()
  return 0
}

/** The two halves apart, so that `berth key … > key.yaml` puts into a repository only what may be there. */
async function printKey(options: KeyOptions): Promise<number> {
  const { declareKey } = await import("./identity/key-manifest.ts")
  const { value, manifest } = declareKey(options)
  process.stdout.write(manifest)
  process.stderr.write(`# The key's value. It is shown once and kept nowhere.\n${value}\n`)
  return 0
}

/** So that `TOKEN=$(berth login)` works. */
async function printToken(options: LoginOptions, signal: AbortSignal): Promise<number> {
  const { login, userIdIn } = await import("./identity/login.ts")
  const prompt = (address: string, code: string): void => {
    process.stderr.write(`Open ${address} and agree if it shows the code ${code}.\n`)
  }
  const token = await login({ ...options, signal, prompt })
  const userId = userIdIn(token)
  if (userId !== undefined) process.stderr.write(`You are ${userId}: by this others invite you.\n`)
  process.stdout.write(`${token}\n`)
  return 0
}

async function rotateKey(options: RotateOptions): Promise<number> {
  const { connect } = await import("./connect.ts")
  const { rotateSealingKey } = await import("./identity/sealing-keys.ts")
  const client = connect(options)
  const { before, now } = await rotateSealingKey(client, options.systemNamespace).finally(() => client.close())
  process.stdout.write(`Credentials are sealed under the key ${now} from now on, in place of ${before}.\n`)
  return 0
}

async function version(): Promise<string> {
  const { version } = JSON.parse(await readFile(packageFile("package.json"), "utf8")) as { version: string }
  return version
}
