import { compileCache } from "../../../dev/compile-cache.ts"
import { LocalCloud } from "../../../dev/local-cloud/local.ts"
import { LOCAL_REGION, localOffers } from "../../../dev/local-cloud/offers.ts"
import type { Cloud, Clouds } from "../../../src/clouds/cloud.ts"
import { connect } from "../../../src/connect.ts"
import { systemClock } from "../../../src/core/apis/clock.ts"
import type { Offer } from "../../../src/core/apis/offer.ts"
import type { PrivateTargets } from "../../../src/core/outbound/public-fetch.ts"
import { createLogger } from "../../../src/core/telemetry/logger.ts"
import { fixedOffers } from "../../../src/market/catalogue/offers.ts"
import { startOperator } from "../../../src/operator/main.ts"
import { Life, Plan, type Point } from "../../faults/crash-gate.ts"
import { configuration, ready, stopSignal } from "./entry.ts"

/** Configuration of an operator of these tests. */
export interface OperatorConfig {
  kubeconfig: string
  systemNamespace: string
  watchNamespace: string
  gatewayUrl: string
  /** Folder of the local cloud's VMs. */
  vmsDir: string
  agentCommand: string[]
  privateReceivers: PrivateTargets
  dockerSocket?: string
  /** True: the VMs of failed jobs can be kept for sessions. */
  sessions?: boolean
  /** True for a catalogue without offers: jobs stay queued. */
  withoutOffers?: boolean
  /** Memory of the machines that are offered, GiB, the cheapest first. Default: those of the local cloud. */
  memoriesGib?: readonly number[]
  /** Makes launch calls hang forever: before the VM is created, or after. */
  hang?: "beforeLaunch" | "afterLaunch"
  /** Call at which the operator kills itself with SIGKILL: before the call, or after its effect. */
  inject?: { point: Point; fault: "before" | "after" }
}

/** Long enough that a pause of some seconds doesn't change the leader. */
const LEASE_TIMES = { leaseSeconds: 15, renewDeadlineSeconds: 10, retrySeconds: 0.5 }

const config = configuration<OperatorConfig>()
const stop = stopSignal()
const logger = createLogger({ level: "trace", name: "operator" })
const client = connect(config)
const plan = new Plan(config.inject)
const noObserver = { onTerminate: () => undefined, onCloudChange: () => Promise.resolve() }
const life = new Life(plan, noObserver, () => process.kill(process.pid, "SIGKILL"))
const cloud = new LocalCloud({
  dataDir: config.vmsDir,
  agentCommand: config.agentCommand,
  agentEnvironment: compileCache(),
  region: LOCAL_REGION,
  clock: systemClock,
  ...(config.dockerSocket !== undefined && { dockerSocket: config.dockerSocket }),
  onError: (err) => logger.warn({ err }, "a VM can't be ended for now"),
})
const { ended } = await startOperator(
  config,
  {
    client: life.client(client, { kinds: [], selector: "" }),
    clouds: life.clouds(logged(cloud)),
    providers: {},
    architectures: [],
    offers: fixedOffers(config.withoutOffers === true ? [] : offersOf(config)),
    ownAccounts: [{ cloud: "local", region: LOCAL_REGION }],
    observeSeconds: 0.5,
    leaseTimes: LEASE_TIMES,
    logger,
  },
  stop,
)
ready({})
await ended
process.stdout.write(`CALLS ${JSON.stringify(plan.points())}\n`)
await cloud.close()
await client.close()

function offersOf({ memoriesGib }: OperatorConfig): Offer[] {
  const offers = localOffers()
  if (memoriesGib === undefined) return offers
  return offers.slice(0, memoriesGib.length).map((offer, index) => ({ ...offer, memoryGib: memoriesGib[index] ?? 0 }))
}

/** Wraps the local cloud and logs each call that changes something before the call. */
function logged(local: LocalCloud): Clouds {
  const cloud: Cloud = {
    consistencySeconds: local.consistencySeconds,
    launch: async (spec, fence) => {
      logger.info({ launch: spec.name }, "calls launch")
      if (config.hang === undefined) return await local.launch(spec, fence)
      if (config.hang === "afterLaunch") await local.launch(spec)
      // Never answers: the test kills the operator at this moment.
      return await new Promise(() => undefined)
    },
    list: (scope) => local.list(scope),
    terminate: async (vm, fence) => {
      logger.info({ launch: vm.launch }, "calls terminate")
      await local.terminate(vm, fence)
    },
    verify: () => local.verify(),
  }
  return { open: () => Promise.resolve(cloud) }
}
