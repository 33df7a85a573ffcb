import { KubeConfig } from "@kubernetes/client-node"
/**
 * This program is an operator of one namespace, with webhooks. A test starts it, and kills it at any moment. At its end it
 * prints the durations of all reconciles of jobs, in seconds.
 */
import { systemClock } from "../../src/core/apis/clock.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { Manager } from "../../src/core/runtime/manager.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../../src/market/caches.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { JOB_ARRAY_CACHE, JOB_CACHE, jobIndexes } from "../../src/operator/caches.ts"
import { createJobController } from "../../src/operator/job/controller.ts"
import { Prerequisites } from "../../src/operator/prerequisites.ts"
import { SettledJobs } from "../../src/operator/settled-jobs.ts"
import type { WebhookSettings } from "../../src/operator/webhook/settings.ts"
import { webhookParts } from "../harness/webhook-parts.ts"

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
  const jobArrays = new Reflector({ ...base, ...JOB_ARRAY_CACHE })
  const launches = new Reflector({ ...base, ...LAUNCH_CACHE })
  const statements = new Reflector({ ...base, ...STATEMENT_CACHE })
  const clock = systemClock
  const fence = (): void => undefined
  const recorder = { record: (): void => undefined }
  const settled = new SettledJobs({
    ...{
      ...base,
      fence,
      clock,
      limitsHistory: () => false,
      isAwaited: () => false,
      ttlSeconds: JOB_DEFAULTS.ttlSeconds,
    },
  })
  const shared = { client, jobs, settled, launches, statements, fence, clock, recorder, logger }
  const parts = webhooks && webhookParts({ ...shared, namespace }, webhooks)
  const jobControl = createJobController({
    ...shared,
    prerequisites: new Prerequisites({ client, jobs, jobArrays }),
    ...(parts && { endReaders: [parts.control.deliveries] }),
    installation: { id: namespace, systemNamespace: namespace, gatewayUrl: "https://gateway.test" },
    offers: fixedOffers([]),
    launchAccounts: { of: () => [] },
  })
  const seconds: number[] = []
  const manager = new Manager({
    reflectors: [jobs, jobArrays, launches, statements, ...(parts?.reflectors ?? [])],
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
