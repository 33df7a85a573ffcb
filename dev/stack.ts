import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { buildConsole } from "../scripts/console.ts"
import { startFacade } from "../src/api/main.ts"
import { JOB_CLOUDS } from "../src/clouds/definitions.ts"
import { loadProviders } from "../src/clouds/registry.ts"
import { connect } from "../src/connect.ts"
import { systemClock } from "../src/core/apis/clock.ts"
import { ensureInstallation, OPERATOR_LEASE } from "../src/core/identity/installation.ts"
import { KubeClient } from "../src/core/kube/client.ts"
import { ifFound } from "../src/core/kube/errors.ts"
import { leases } from "../src/core/kube/lease.ts"
import type { JoinCommands } from "../src/core/machines/commands.ts"
import type { PrivateTargets } from "../src/core/outbound/public-fetch.ts"
import { packageFile } from "../src/core/package.ts"
import { createLogger, type Logger, logDestination } from "../src/core/telemetry/logger.ts"
import type { Running } from "../src/core/telemetry/program.ts"
import { buildOffers } from "../src/market/catalogue/file.ts"
import { LiveCatalogue } from "../src/market/catalogue/live.ts"
import { readPriceList } from "../src/market/catalogue/shipped.ts"
import { createTable, joinTables } from "../src/market/router/table.ts"
import { startOperator } from "../src/operator/main.ts"
import { PRICE_REFRESH_HOURS } from "../src/options.ts"
import { installBase } from "./base.ts"
import { compileCache } from "./compile-cache.ts"
import { type ControlPlane, startControlPlane } from "./controlplane/control-plane.ts"
import type { Binaries, Report } from "./controlplane/programs.ts"
import { forgetEndedVms } from "./ended-vms.ts"
import { keptApiKey, writeEnvironment } from "./environment.ts"
import { DEFAULT_NAME, installApiKey, installDefaults, untilProject } from "./install.ts"
import { CLIENT_ID, type DevelopmentIssuer, startIssuer } from "./issuer.ts"
import { joinFromSource } from "./join.ts"
import { LocalCloud, localClouds } from "./local-cloud/local.ts"
import { hostArchitecture, LOCAL_REGION, localOffers } from "./local-cloud/offers.ts"
import type { LocalOptions } from "./options.ts"
import { issuerPort } from "./own-ports.ts"
import { Parts } from "./parts.ts"
import { type PowerOffOptions, powerOff, takeOverPlans } from "./power-off.ts"
import { clusterOf, programCredentials } from "./program-credentials.ts"
import { whenReady } from "./rest.ts"
import type { ChosenRuntime } from "./runtime.ts"
import { unlessAborted } from "./unless-aborted.ts"

export const SYSTEM_NAMESPACE = "berth-system"

/** Receivers of webhooks on this machine, so that a webhook can be tried without a public host. */
const THIS_MACHINE: PrivateTargets = { hosts: ["localhost"], networks: ["127.0.0.0/8", "::1/128"] }

export interface StackOptions extends Pick<LocalOptions, "agentProgram" | "dataDir" | "logLevel"> {
  binaries: Binaries
  runtime: ChosenRuntime
  /** 0 for any free port. */
  port: number
  /** True if acknowledged writes survive a crash of the machine. False for data that is not needed afterwards. */
  durable: boolean
  report: Report
  /** Aborts the start. A stack that has started is ended by its `stop`. */
  signal: AbortSignal
}

/** All programs on one machine: control plane, operator, façade and the local cloud. */
export interface Stack {
  /** URL of the façade, without `/1`. */
  url: string
  apiKey: string
  kubeconfigPath: string
  client: KubeClient
  /** File of shell assignments for reaching this stack. */
  environmentFile: string
  /** Rejects when a part of it fails; never resolves. */
  failed: Promise<never>
  /**
   * Stops everything, including the VMs, within ten seconds. Running jobs run again at the next start, and that does
   * not count as a loss. Never rejects: parts that do not stop are reported.
   */
  stop(): Promise<void>
}

/** Time limit for stopping everything, seconds. The process ends a second later in any case. */
const STOP_SECONDS = 8

/** Time limits for stopping each part, seconds. */
const STOP_LIMITS = { operator: 1.5, records: 0.5, vms: 6, facade: 1, issuer: 0.5, client: 0.5, controlPlane: 5 }

/** Time for agents to end their containers and to deliver results and logs, seconds. Afterwards they are killed. */
const POWER_OFF_SECONDS = 4.5

/** Rest of the limit, for killing them, seconds. */
const KILL_SECONDS = 1.5

/** Time for an agent from SIGTERM to its end, seconds. */
const AGENT_SHUTDOWN_SECONDS = 4

/** Short, because reading the processes of this host is cheap, and a person is waiting. */
const OBSERVE_SECONDS = 1

/** Time for the façade's caches to fill at the start, seconds. */
const READY_SECONDS = 30

/** Starts everything, and reports each step. If a step fails, stops the parts that were started. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const { dataDir, binaries, report, signal } = options
  const begun = performance.now()
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  signal.throwIfAborted()
  const failure = Promise.withResolvers<never>()
  // Without a handler, the rejection would end the process before the stack's user awaits it.
  failure.promise.catch(() => undefined)
  const parts = new Parts(report, STOP_SECONDS)
  try {
    report("starting the Kubernetes API server, etcd and controller manager ...")
    const controlPlane = await startControlPlane({
      binaries,
      dataDir: join(dataDir, "control-plane"),
      durable: options.durable,
      onFailure: failure.reject,
      signal,
    })
    parts.add("the control plane", STOP_LIMITS.controlPlane, () => controlPlane.stop())
    const stack = await startPrograms(options, { controlPlane, parts, fail: failure.reject })
    report(`ready after ${((performance.now() - begun) / 1000).toFixed(1)} s`)
    return { ...stack, failed: failure.promise, stop: () => parts.stop() }
  } catch (error) {
    await parts.stop()
    throw error
  }
}

interface Base {
  controlPlane: ControlPlane
  parts: Parts
  fail: (error: unknown) => void
}

/** Starts the programs on the control plane. Adds each part in the order of the starts. */
async function startPrograms(options: StackOptions, base: Base): Promise<Omit<Stack, "failed" | "stop">> {
  const { dataDir, report, signal } = options
  const { controlPlane, parts } = base
  const { kubeconfigPath } = controlPlane
  const environmentFile = join(dataDir, "env")
  const kept = await keptApiKey(environmentFile)
  const client = connect({ kubeconfig: kubeconfigPath })
  parts.add("the client", STOP_LIMITS.client, () => client.close())
  report("installing the kinds, the default project and its API key ...")
  await unlessAborted(installBase(client, signal), signal)
  await unlessAborted(installDefaults(client), signal)
  const { url, issuer } = await startBerth(options, { ...base, client })
  await unlessAborted(untilProject(client, signal), signal)
  const apiKey = await unlessAborted(installApiKey(client, kept, signal), signal)
  await whenReady(url, READY_SECONDS, signal)
  await writeEnvironment(environmentFile, { url, apiKey, kubeconfig: kubeconfigPath, issuer: issuer.issuer })
  return { url, apiKey, kubeconfigPath, client, environmentFile }
}

/**
 * Starts issuer, façade and operator. Between the last two, registers the power-off of the VMs, so that it runs while
 * the façade serves.
 */
async function startBerth(
  options: StackOptions,
  { controlPlane, parts, fail, client }: Base & { client: KubeClient },
): Promise<{ url: string; issuer: DevelopmentIssuer }> {
  const { dataDir, report, port, signal } = options
  // A separate file: the terminal shows only what a person needs.
  const destination = logDestination(join(dataDir, "berth.log"))
  const loggerOf = (name: string) => createLogger({ level: options.logLevel, name, destination })
  const { id: installation } = await ensureInstallation(client, SYSTEM_NAMESPACE)
  report("starting the operator and the façade ...")
  const localLogger = loggerOf("local-cloud")
  const cloud = localCloud(options, localLogger)
  const programs = { controlPlane, parts, admin: client }
  const asFacade = await programClient("berth-facade", programs, loggerOf("facade"))
  const asOperator = await programClient("berth-operator", programs, loggerOf("operator"))
  const market = await localMarket()
  // The issuer's address identifies people, so the address must stay the same if any data is kept.
  const issuer = await startIssuer({ port: issuerPort(port), dataDir })
  parts.add("the issuer", STOP_LIMITS.issuer, () => issuer.close())
  const consoleFolder = join(dataDir, "console")
  await buildConsole(consoleFolder)
  const facade = await startPart(parts, "the façade", STOP_LIMITS.facade, (stop) =>
    startFacade(
      {
        systemNamespace: SYSTEM_NAMESPACE,
        host: "127.0.0.1",
        port,
        baseDomain: "localhost",
        defaultProject: DEFAULT_NAME,
        logsDir: join(dataDir, "logs"),
        issuer,
        oidcClientId: CLIENT_ID,
        privateReceivers: THIS_MACHINE,
      },
      {
        client: asFacade,
        clouds: [...JOB_CLOUDS, "local"],
        ...market,
        joinCommands: (token): JoinCommands => joinFromSource({ ...options, url: facade.url, token }),
        consoleFolder,
        logger: loggerOf("facade"),
      },
      stop,
    ),
  )
  // Stopped after the operator, which then launches nothing, and before the façade, which stores results and logs.
  const scope = { installation, region: LOCAL_REGION }
  const powerOffOptions = { cloud, scope, client, systemNamespace: SYSTEM_NAMESPACE, clock: systemClock }
  addPowerOff(parts, { ...powerOffOptions, report, signal })
  await endFormerLeader(client)
  await unlessAborted(takeOverPlans(powerOffOptions), signal)
  const operator = await startPart(parts, "the operator", STOP_LIMITS.operator, (stop) =>
    startOperator(
      {
        systemNamespace: SYSTEM_NAMESPACE,
        gatewayUrl: facade.url,
        priceRefreshHours: PRICE_REFRESH_HOURS.list,
        spotPriceRefreshHours: PRICE_REFRESH_HOURS.market,
        privateReceivers: THIS_MACHINE,
      },
      {
        client: asOperator,
        clouds: localClouds(cloud),
        ...market,
        observeSeconds: OBSERVE_SECONDS,
        logger: loggerOf("operator"),
      },
      stop,
    ),
  )
  const onError = (err: unknown) => localLogger.warn({ err }, "records of ended VMs can't be removed now; retrying")
  await startPart(parts, "the records of ended VMs", STOP_LIMITS.records, async (stop) => ({
    ended: forgetEndedVms({ ...powerOffOptions, onError }, stop),
  }))
  for (const { ended } of [facade, operator]) ended.catch(fail)
  return { url: facade.url, issuer }
}

/** Starts a program that runs until its signal. Stopping it waits until it has ended. */
async function startPart<Program extends Pick<Running, "ended">>(
  parts: Parts,
  name: string,
  seconds: number,
  start: (stop: AbortSignal) => Promise<Program>,
): Promise<Program> {
  const stop = new AbortController()
  const program = await start(stop.signal)
  parts.add(name, seconds, () => {
    stop.abort()
    return program.ended
  })
  return program
}

/** Returns one catalogue and one account for both operator and façade, so that a dry run predicts the operator. */
async function localMarket() {
  return {
    offers: new LiveCatalogue(joinTables(buildOffers(readPriceList()), createTable(localOffers()))),
    providers: await loadProviders(),
    ownAccounts: [{ cloud: "local", region: LOCAL_REGION }],
    architectures: [hostArchitecture()],
  }
}

/**
 * Deletes the Lease of an earlier run. The data directory's lock proves that its operator is dead, so its Lease need
 * not expire first.
 */
async function endFormerLeader(client: KubeClient): Promise<void> {
  await ifFound(client.delete(leases, { namespace: SYSTEM_NAMESPACE, name: OPERATOR_LEASE }))
}

/** Adds the power-off of the VMs to the parts that stop. If this process exits earlier, the VMs are killed. */
function addPowerOff(
  parts: Parts,
  {
    signal,
    report,
    ...options
  }: Omit<PowerOffOptions, "seconds"> & { cloud: LocalCloud } & Pick<StackOptions, "report" | "signal">,
): void {
  const { cloud } = options
  let isPoweringOff = false
  // On a busy machine this process may reach its own time limit first.
  process.once("exit", () => {
    if (isPoweringOff || signal.aborted) cloud.killNow()
  })
  parts.add("the VMs", STOP_LIMITS.vms, (limit) => {
    isPoweringOff = true
    const seconds = Math.min(POWER_OFF_SECONDS, limit - KILL_SECONDS)
    return endVms({ ...options, seconds }, cloud, report)
  })
}

/** Powers the VMs off and reports the result. */
async function endVms(options: PowerOffOptions, cloud: LocalCloud, report: Report): Promise<void> {
  const { ended, failures } = await powerOff(options)
  await cloud.close()
  if (ended > 0) report(`powered off ${ended} VM(s); their jobs run again after the next start, unless they had ended`)
  for (const failure of failures) report(`powering off a VM: ${failure}`)
}

/** Returns a client with exactly the rights that a program has in a cluster. So a missing right shows here too. */
async function programClient(
  name: "berth-operator" | "berth-facade",
  { controlPlane, parts, admin }: { controlPlane: ControlPlane; parts: Parts; admin: KubeClient },
  logger: Logger,
): Promise<KubeClient> {
  const credentials = await programCredentials({
    client: admin,
    cluster: clusterOf(controlPlane.kubeconfigPath),
    serviceAccount: { namespace: SYSTEM_NAMESPACE, name },
    onError: (err) => logger.warn({ err }, "the token could not be renewed; retrying"),
  })
  const client = new KubeClient(credentials.kubeConfig)
  parts.add(`the client of ${name}`, STOP_LIMITS.client, () => {
    credentials.stop()
    return client.close()
  })
  return client
}

function localCloud({ dataDir, runtime, agentProgram }: StackOptions, logger: Logger): LocalCloud {
  return new LocalCloud({
    dataDir: join(dataDir, "vms"),
    agentCommand: agentCommand(agentProgram ?? packageFile("src", "main.ts"), runtime),
    agentEnvironment: compileCache(),
    region: LOCAL_REGION,
    clock: systemClock,
    ...("dockerSocket" in runtime && { dockerSocket: runtime.dockerSocket }),
    onError: (err) => logger.warn({ err }, "a VM can't be terminated now; retrying"),
  })
}

/** Returns the command that runs an agent of this program. It has no DOCKER_HOST, so it gets the chosen socket. */
function agentCommand(program: string, chosen: ChosenRuntime): string[] {
  const agent = [process.execPath, program, "agent", "--runtime", chosen.runtime]
  const engine = chosen.runtime === "docker" ? ["--docker-socket", chosen.dockerSocket] : []
  return [...agent, ...engine, "--shutdown-seconds", String(AGENT_SHUTDOWN_SECONDS)]
}
