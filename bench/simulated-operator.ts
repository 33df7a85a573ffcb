// The operator as in a deployment, except its provider: VMs on AWS are created in a simulated cloud over HTTP.
// Benchmarks start it in a process of its own.
import { parseArgs } from "node:util"
import { Pool } from "undici"
import type { Cloud, Vm } from "../src/clouds/cloud.ts"
import { createClouds, type Providers } from "../src/clouds/provider.ts"
import { connect } from "../src/connect.ts"
import { OutcomeUnknownError, TransientError } from "../src/core/outbound/errors.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { buildOffers } from "../src/market/catalogue/file.ts"
import { LiveCatalogue } from "../src/market/catalogue/live.ts"
import { readPriceList } from "../src/market/catalogue/shipped.ts"
import { startOperator } from "../src/operator/main.ts"
import { SYSTEM_NAMESPACE } from "./program.ts"
import type { VmRequest } from "./simulated-cloud.ts"

/** More than any run reaches: Berth's own launch limit must not hide its speed. */
const LAUNCHES_PER_MINUTE = 1_000_000

const text = { type: "string", default: "" } as const
const { values } = parseArgs({
  options: { kubeconfig: text, "gateway-url": text, "cloud-url": text, "metrics-port": text, retention: text },
})
const { retention } = values
const stop = new AbortController()
process.on("SIGTERM", () => stop.abort())
const pool = new Pool(values["cloud-url"], { connections: 32 })
const client = connect({ kubeconfig: values.kubeconfig })
const operator = await startOperator(
  {
    systemNamespace: SYSTEM_NAMESPACE,
    gatewayUrl: values["gateway-url"],
    agentImage: "registry.test/berth:1",
    metricsPort: Number(values["metrics-port"]),
  },
  {
    client,
    clouds: createClouds({}),
    providers: simulated(pool),
    offers: new LiveCatalogue(buildOffers(readPriceList())),
    ownAccounts: [],
    architectures: ["amd64"],
    launchesPerMinute: LAUNCHES_PER_MINUTE,
    ...(retention !== "" && { retentionSeconds: Number(retention) }),
    logger: createLogger({ level: "warn", name: "operator" }),
  },
  stop.signal,
)
await operator.ended
await client.close()
await pool.close()

/** Connections of type aws open the simulated cloud, whatever their credentials. */
function simulated(cloud: Pool): Providers {
  const identity = { account: "simulated" }
  return {
    aws: {
      account: () => ({ verify: () => Promise.resolve(identity) }),
      region: (_, region): Cloud => ({
        imageFor: () => Promise.resolve("image-1"),
        launch: ({ name, installation, userData }, fence) => {
          fence?.()
          return call<Vm>(cloud, "PUT", `/${name}`, { name, installation, region, userData } satisfies VmRequest)
        },
        list: ({ installation }) => call<Vm[]>(cloud, "GET", `/?${new URLSearchParams({ installation, region })}`),
        terminate: async ({ launch }, fence) => {
          fence?.()
          await call(cloud, "DELETE", `/${launch}`)
        },
        verify: () => Promise.resolve(identity),
        consistencySeconds: 0,
      }),
    },
  }
}

async function call<Answer>(
  cloud: Pool,
  method: "PUT" | "GET" | "DELETE",
  path: string,
  body?: object,
): Promise<Answer> {
  const sent = cloud.request({ method, path, ...(body !== undefined && { body: JSON.stringify(body) }) })
  const answer = await sent.catch((cause: unknown) => {
    throw new OutcomeUnknownError("NoAnswer", "the simulated cloud did not answer", { cause })
  })
  if (answer.statusCode === 200) return (await answer.body.json()) as Answer
  throw new TransientError(String(answer.statusCode), await answer.body.text())
}
