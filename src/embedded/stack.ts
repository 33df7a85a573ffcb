import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { systemClock } from "../apis/clock.ts"
import { offersOf } from "../catalogue/file.ts"
import { LiveCatalogue } from "../catalogue/live.ts"
import { readPriceList } from "../catalogue/shipped.ts"
import { LocalCloud, localClouds } from "../cloud/local/local.ts"
import { hostArchitecture, LOCAL_REGION, localOffers } from "../cloud/local/offers.ts"
import { ensureInstallation } from "../identity/installation.ts"
import { KubeClient } from "../kube/client.ts"
import { type LocalOptions, PRICE_REFRESH_HOURS } from "../options.ts"
import { providersOf } from "../providers.ts"
import { joined, tableOf } from "../router/table.ts"
import { createLogger, type Logger, logFile } from "../telemetry/logger.ts"
import { connect, type Running, startFacade, startOperator } from "../wire.ts"
import { installBase } from "./base.ts"
import { compileCache } from "./compile-cache.ts"
import { type ControlPlane, startControlPlane } from "./controlplane/control-plane.ts"
import type { Binaries, Report } from "./controlplane/programs.ts"
import { keptApiKey, writeEnvironment } from "./environment.ts"
import { DEFAULT_NAME, installApiKey, installDefaults, untilProject } from "./install.ts"
import { type DevelopmentIssuer, startIssuer } from "./issuer.ts"
import { powerOff } from "./power-off.ts"
import { clusterOf, programCredentials } from "./program-credentials.ts"
import { whenReady } from "./rest.ts"
import type { ChosenRuntime } from "./runtime.ts"

export const SYSTEM_NAMESPACE = "berth-system"

export interface StackOptions extends Pick<LocalOptions, "dataDir" | "logLevel"> {
  binaries: Binaries
  runtime: ChosenRuntime
  /** 0: any free one. */
  port: number
  /** Whether what was acknowledged survives a crash of the machine; false where nobody needs it afterwards. */
  durable: boolean
  report: Report
  /** Ends the start; a stack that has started is ended by its `stop`. */
  signal: AbortSignal
}

/** Everything on one machine: control plane, operator, façade and the local cloud. */
export interface Stack {
  /** Of the façade, without `/1`. */
  url: string
  apiKey: string
  kubeconfigPath: string
  client: KubeClient
  /** File of shell assignments that reach this stack. */
  environmentFile: string
  /** Rejects when a part of it fails, never resolves. */
  failed: Promise<never>
  /** Ends everything, the VMs included: a job that runs is run again at the next start. */
  stop(): Promise<void>
}

/** What a stack is made of once it runs, for its end. */
interface Parts {
  controlPlane: ControlPlane
  client: KubeClient
  clients: ProgramClient[]
  facade: Running
  operator: Running
  issuer: DevelopmentIssuer
  cloud: LocalCloud
  installation: string
  report: Report
}

/** How long VMs may take to end when the stack stops, seconds: their containers have ten of them to tidy up. */
const POWER_OFF_SECONDS = 20

/** Looking at processes of this host costs little, and a person is waiting. */
const OBSERVE_SECONDS = 1

/** Seconds that the façade's caches may take to fill at the start. */
const READY_SECONDS = 30

/** Starts everything, telling each step. What was started is ended again when a later step fails. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const { dataDir, binaries, report, signal } = options
  const begun = performance.now()
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  signal.throwIfAborted()
  const failure = Promise.withResolvers<never>()
  // It is for the stack's user to look at; unobserved it must not end the process.
  failure.promise.catch(() => undefined)
  report("starting the Kubernetes API server, etcd and controller manager ...")
  const controlPlane = await startControlPlane({
    binaries,
    dataDir: join(dataDir, "control-plane"),
    durable: options.durable,
    onFailure: failure.reject,
  })
  try {
    signal.throwIfAborted()
    const stack = await startPrograms(options, controlPlane, failure.reject)
    report(`ready after ${((performance.now() - begun) / 1000).toFixed(1)} s`)
    return { ...stack, failed: failure.promise }
  } catch (error) {
    await controlPlane.stop()
    throw error
  }
}

async function startPrograms(
  options: StackOptions,
  controlPlane: ControlPlane,
  fail: (error: unknown) => void,
): Promise<Omit<Stack, "failed">> {
  const { dataDir, report, signal } = options
  const { kubeconfigPath } = controlPlane
  const environmentFile = join(dataDir, "env")
  const client = connect({ kubeconfig: kubeconfigPath })
  const stop = new AbortController()
  // A file of its own: the terminal is for what a person wants to know.
  const destination = logFile({ dest: join(dataDir, "berth.log"), append: true, sync: true, mode: 0o600 })
  const loggerOf = (name: string) => createLogger({ level: options.logLevel, name, destination })
  report("installing the kinds, the default project and its API key ...")
  await installBase(client, signal)
  await installDefaults(client)
  const { id: installation } = await ensureInstallation(client, SYSTEM_NAMESPACE)
  report("starting the operator and the façade ...")
  const cloud = localCloud(dataDir, options.runtime, loggerOf("local-cloud"))
  const asFacade = await programClient("berth-facade", controlPlane, client, loggerOf("facade"))
  const asOperator = await programClient("berth-operator", controlPlane, client, loggerOf("operator"))
  // One catalogue and one account for both: what a dry run answers is what the operator would do.
  const market = {
    offers: new LiveCatalogue(joined(offersOf(readPriceList()), tableOf(localOffers()))),
    providers: providersOf(),
    ownAccounts: [{ cloud: "local", region: LOCAL_REGION }],
    architectures: [hostArchitecture()],
  }
  // People are known by their issuer's address, so it stays the same where anything is kept.
  const issuer = await startIssuer({ port: options.port === 0 ? 0 : options.port + 1, dataDir })
  const facade = await startFacade(
    {
      systemNamespace: SYSTEM_NAMESPACE,
      host: "127.0.0.1",
      port: options.port,
      baseDomain: "localhost",
      defaultProject: DEFAULT_NAME,
      logsDir: join(dataDir, "logs"),
      issuer,
    },
    {
      client: asFacade.client,
      clouds: ["aws", "gcp", "azure", "local"],
      ...market,
      logger: loggerOf("facade"),
    },
    stop.signal,
  )
  const operator = await startOperator(
    {
      systemNamespace: SYSTEM_NAMESPACE,
      gatewayUrl: facade.url,
      priceRefreshHours: PRICE_REFRESH_HOURS.list,
      spotPriceRefreshHours: PRICE_REFRESH_HOURS.market,
    },
    {
      client: asOperator.client,
      clouds: localClouds(cloud),
      ...market,
      observeSeconds: OBSERVE_SECONDS,
      logger: loggerOf("operator"),
    },
    stop.signal,
  )
  for (const { ended } of [facade, operator]) ended.catch(fail)
  await untilProject(client, signal)
  const apiKey = await installApiKey(client, await keptApiKey(environmentFile), signal)
  await whenReady(facade.url, READY_SECONDS, signal)
  const environment = { url: facade.url, apiKey, kubeconfig: kubeconfigPath, issuer: issuer.issuer }
  await writeEnvironment(environmentFile, environment)
  const clients = [asFacade, asOperator]
  const parts = { controlPlane, client, clients, facade, operator, issuer, cloud, installation, report }
  return { url: facade.url, apiKey, kubeconfigPath, client, environmentFile, stop: () => stopStack(parts, stop) }
}

interface ProgramClient {
  client: KubeClient
  close(): Promise<void>
}

/** A client with exactly the rights that a program has in a cluster, so that what it may not do there fails here, too. */
async function programClient(
  name: "berth-operator" | "berth-facade",
  { kubeconfigPath }: ControlPlane,
  admin: KubeClient,
  logger: Logger,
): Promise<ProgramClient> {
  const credentials = await programCredentials({
    client: admin,
    cluster: clusterOf(kubeconfigPath),
    serviceAccount: { namespace: SYSTEM_NAMESPACE, name },
    onError: (err) => logger.warn({ err }, "the token could not be renewed, it is tried again"),
  })
  const client = new KubeClient(credentials.kubeConfig)
  return {
    client,
    close: async () => {
      credentials.stop()
      await client.close()
    },
  }
}

function localCloud(dataDir: string, runtime: ChosenRuntime, logger: Logger): LocalCloud {
  return new LocalCloud({
    dataDir: join(dataDir, "vms"),
    agentCommand: agentCommand(runtime),
    agentEnvironment: compileCache(),
    region: LOCAL_REGION,
    clock: systemClock,
    ...("dockerSocket" in runtime && { dockerSocket: runtime.dockerSocket }),
    onError: (err) => logger.warn({ err }, "a VM can't be ended for now, it is tried again"),
  })
}

/** This very program, as a VM's agent. */
function agentCommand({ runtime }: ChosenRuntime): string[] {
  const main = process.argv[1]
  if (main === undefined) throw new Error("this program does not know its own file, so it can't start agents")
  return [process.execPath, main, "agent", "--runtime", runtime]
}

/** The operator first, so that nobody launches again what is ended here. */
async function stopStack(parts: Parts, stop: AbortController): Promise<void> {
  const { controlPlane, client, clients, facade, operator, issuer, cloud, installation, report } = parts
  stop.abort()
  await Promise.allSettled([operator.ended, facade.ended])
  const { ended, left } = await powerOff(cloud, { installation, region: LOCAL_REGION }, POWER_OFF_SECONDS)
  await cloud.close()
  if (ended > 0) report(`ended ${ended} VM(s) that still ran`)
  if (left.length > 0) report(`VMs still ending: ${left.join(", ")}`)
  await Promise.all([issuer.close(), ...clients.map((each) => each.close())])
  await client.close()
  await controlPlane.stop()
}
