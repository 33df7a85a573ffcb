import { LOCAL_REGION, localOffers } from "../../../dev/local-cloud/offers.ts"
import { startFacade } from "../../../src/api/main.ts"
import { connect } from "../../../src/connect.ts"
import type { WorkloadIssuer } from "../../../src/core/identity/oidc.ts"
import { createLogger } from "../../../src/core/telemetry/logger.ts"
import { fixedOffers } from "../../../src/market/catalogue/offers.ts"
import { configuration, ready, stopSignal } from "./entry.ts"

/** Configuration of a façade of these tests. */
export interface FacadeConfig {
  kubeconfig: string
  systemNamespace: string
  watchNamespace: string
  /** Port, or 0 for any free one. */
  port: number
  project: string
  sessions: boolean
  /** Domain of the ports of jobs. Absent: none. */
  sessionDomain?: string
  /** Folder of a built web console. Absent: none is served. */
  consoleFolder?: string
  logs: { logsDir: string } | { logsBucket: string; logsEndpoint: string; logsRegion: string }
  /** Issuers whose tokens keys may trust. Default: none. */
  workloadIssuers?: WorkloadIssuer[]
}

const { project, logs, consoleFolder, ...config } = configuration<FacadeConfig>()
const logger = createLogger({ level: "trace", name: "facade" })
const client = connect(config)
const { url, ended } = await startFacade(
  { ...config, ...logs, host: "127.0.0.1", baseDomain: "localhost", defaultProject: project },
  {
    client,
    clouds: ["aws", "gcp", "azure", "local"],
    providers: {},
    architectures: [],
    offers: fixedOffers(localOffers()),
    ownAccounts: [{ cloud: "local", region: LOCAL_REGION }],
    ...(consoleFolder !== undefined && { consoleFolder }),
    logger,
  },
  stopSignal(),
)
ready({ url })
await ended
await client.close()
