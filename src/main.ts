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
import { publicFetch } from "./registries/public-fetch.ts"
import { createLogger } from "./telemetry/logger.ts"

/** How long a program may take to end after it was asked to, seconds. It ends then whatever hangs. */
const STOP_SECONDS = 9

/** How long what a program has left open may keep the process alive when it is done, seconds. */
const LINGER_SECONDS = 1

const invocation = await readInvocation(process.argv, await version())
const stopping = new AbortController()
try {
  process.exitCode = await run(invocation)
} catch (error) {
  process.exitCode = stopping.signal.aborted ? 130 : 1
  if (!stopping.signal.aborted)
    console.error(`berth ${invocation.command}: ${error instanceof Error ? describe(error) : String(error)}`)
}
setTimeout(() => process.exit(), LINGER_SECONDS * 1000).unref()

/**
 * Each program is imported only when it is the one asked for: an agent needs no façade, a façade no cloud. A signal that
 * comes during the imports of the stack, which take long, ends the process by its default: nothing has started yet. As
 * process 1 of a container a program has no such default, so operator, façade and agent listen from the first.
 */
async function run({ command, options }: Invocation): Promise<number> {
  switch (command) {
    case "serve": {
      const { runServe } = await import("./embedded/serve.ts")
      return runServe(options, stopSignal(command))
    }
    case "demo": {
      const { runDemo } = await import("./embedded/demo.ts")
      return runDemo(options, stopSignal(command))
    }
    case "agent":
      return runVm(options, stopSignal(command))
    case "operator":
      return runOperator(options, stopSignal(command))
    case "facade":
      return runFacade(options, stopSignal(command))
    case "key":
      return printKey(options)
    case "login":
      return printToken(options, stopSignal(command))
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

/** One Ctrl-C may arrive several times: from the terminal, and from each program in between that passes it on. */
const SAME_SIGNAL_MS = 1000

/** Aborted by the first SIGINT or SIGTERM, to end in order; another Ctrl-C after that ends at once. */
function stopSignal(command: Invocation["command"]): AbortSignal {
  let stoppedAt = 0
  const stop = (name: NodeJS.Signals): void => {
    if (!stopping.signal.aborted) {
      stoppedAt = performance.now()
      // An agent has limits of its own: it may still have results to upload.
      if (command !== "agent") setTimeout(() => giveUp(command), STOP_SECONDS * 1000).unref()
    } else if (name === "SIGINT" && performance.now() - stoppedAt > SAME_SIGNAL_MS) process.exit(130)
    stopping.abort(new Error(`stopped by ${name}`))
  }
  process.on("SIGINT", stop)
  process.on("SIGTERM", stop)
  return stopping.signal
}

function giveUp(command: string): void {
  console.error(`berth ${command}: not everything ended within ${STOP_SECONDS} s; this process ends now`)
  process.exit(1)
}

async function version(): Promise<string> {
  const { version } = JSON.parse(await readFile(packageFile("package.json"), "utf8")) as { version: string }
  return version
}

/** What a person can act on; the stack only where the fault is our own. */
function describe(error: Error): string {
  const cause = error.cause instanceof Error ? `\n  because: ${error.cause.message}` : ""
  const isOurs = error instanceof TypeError || error instanceof ReferenceError
  return `${isOurs ? (error.stack ?? error.message) : error.message}${cause}`
}
