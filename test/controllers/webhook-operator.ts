import { KubeConfig } from "@kubernetes/client-node"
/**
 * This program is an operator of one namespace, with webhooks. A test starts it, and kills it at any moment. At its end it
 * prints the durations of all reconciles of jobs, in seconds.
 */
import { systemClock } from "../../src/apis/clock.ts"
import { fixedOffers } from "../../src/catalogue/offers.ts"
import { createJobController } from "../../src/controllers/job/controller.ts"
import { JOB_CACHE, jobIndexes } from "../../src/controllers/job/options.ts"
import { launchIndexes } from "../../src/controllers/launch/controller.ts"
import { LAUNCHES } from "../../src/controllers/launch/options.ts"
import { SettledJobs } from "../../src/controllers/settled-jobs.ts"
import { STATEMENT_INDEXES, STATEMENTS } from "../../src/controllers/statement/options.ts"
import type { WebhookSettings } from "../../src/controllers/webhook/options.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { Reflector } from "../../src/kube/reflector.ts"
import { JOB_DEFAULTS } from "../../src/placement/settings.ts"
import { Manager } from "../../src/runtime/manager.ts"
import { createLogger } from "../../src/telemetry/logger.ts"
import { webhookParts } from "./webhook-parts.ts"

/** Argument of this program, in JSON. */
export interface WebhookOperatorOptions {
  kubeconfig: string
  namespace: string
  /** Absent: no webhooks are sent. */
  webhooks?: Partial<WebhookSettings> & { timeoutSeconds?: number }
}

async function main({ kubeconfig, namespace, webhooks }: WebhookOperatorOptions): Promise<void> {
  const config = new KubeConfig()
  config.loadFromFile(kubeconfig)
  const client = new KubeClient(config)
  const logger = createLogger({ level: "error", name: "operator" })
  const base = { client, namespace, logger }
  const jobs = new Reflector({ ...base, ...JOB_CACHE, indexes: jobIndexes })
  const launches = new Reflector({ ...base, resource: LAUNCHES, indexes: launchIndexes })
  const statements = new Reflector({ ...base, resource: STATEMENTS, indexes: STATEMENT_INDEXES })
  const clock = systemClock
  const fence = (): void => undefined
  const recorder = { record: (): void => undefined }
  const settled = new SettledJobs({
    ...{ ...base, fence, clock, limitsHistory: () => false, ttlSeconds: JOB_DEFAULTS.ttlSeconds },
  })
  const shared = { client, jobs, settled, launches, statements, fence, clock, recorder, logger }
  const parts = webhooks && webhookParts({ ...shared, namespace }, webhooks)
  const jobControl = createJobController({
    ...shared,
    ...(parts && { endReaders: [parts.control.deliveries] }),
    installation: { id: namespace, systemNamespace: namespace, gatewayUrl: "https://gateway.test" },
    offers: fixedOffers([]),
    launchAccounts: { of: () => [] },
  })
  const seconds: number[] = []
  const manager = new Manager({
    reflectors: [jobs, launches, statements, ...(parts?.reflectors ?? [])],
    controllers: [jobControl, ...(parts ? [parts.control.controller] : [])],
    leaderTasks: [
      (signal) => settled.run(signal),
      ...(parts ? [(signal: AbortSignal) => parts.control.deliveries.run(signal)] : []),
    ],
    metricsOf: (controller) => ({
      depth: () => undefined,
      waited: () => undefined,
      worked: () => undefined,
      retried: () => undefined,
      reconciled: (_, duration) => void (controller === "job" && seconds.push(duration)),
    }),
    logger,
  })
  const stop = new AbortController()
  process.once("SIGTERM", () => stop.abort())
  process.stdout.write("started\n")
  await manager.run(stop.signal)
  process.stdout.write(`${JSON.stringify(seconds)}\n`)
  await client.close()
}

await main(JSON.parse(process.argv[2] ?? "{}") as WebhookOperatorOptions)
