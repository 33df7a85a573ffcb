import { type FacadeParts, startFacade } from "../../src/api/main.ts"
import { createClouds } from "../../src/clouds/provider.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { createLogger, type Logger } from "../../src/core/telemetry/logger.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { type OperatorParts, startOperator } from "../../src/operator/main.ts"

export type ProgramName = "berth-operator" | "berth-facade"

type OperatorOptions = Parameters<typeof startOperator>[0]
type FacadeOptions = Parameters<typeof startFacade>[0]

/** Parts that both programs share. Absent: no connection opens an account, and no account is there without one. */
export type Market = Pick<OperatorParts, "offers"> &
  Partial<Pick<OperatorParts, "providers" | "ownAccounts" | "architectures">>

type Shared = Required<Market> & { client: KubeClient; logger: Logger }

export interface ProgramsOptions {
  systemNamespace: string
  /** Namespace of its one project. Default: it serves all namespaces. */
  watchNamespace?: string
  /** Returns a new client for a program, which is closed after the program. */
  clientOf: (program: ProgramName) => Promise<KubeClient>
  market: Market
  /** Level of the log lines that are kept. Default: info. */
  level?: "info" | "trace"
}

/** A program that runs in this process. */
export type Stoppable<Program extends Running = Running> = Program & { stop(): Promise<void> }

export type Facade = Stoppable<Running & { url: string }>

/** Operators and façades of one installation, as `main.ts` constructs them. They run in this process. */
export class Programs {
  /** All log lines. */
  readonly lines: string[] = []
  readonly #options: ProgramsOptions
  readonly #running = new Set<() => Promise<void>>()

  constructor(options: ProgramsOptions) {
    this.#options = options
  }

  /** Resolves when the operator is a candidate. It opens only the accounts of connections unless parts say more. */
  startOperator(options: Partial<OperatorOptions> = {}, parts: Partial<OperatorParts> = {}): Promise<Stoppable> {
    const defaults = { ...this.#where(), gatewayUrl: "https://gateway.test", agentImage: "registry.test/berth:1.0" }
    return this.#start("berth-operator", (shared, end) =>
      startOperator(
        { ...defaults, ...options },
        { ...shared, clouds: createClouds({}), observeSeconds: 0.1, ...parts },
        end,
      ),
    )
  }

  /** Resolves when the façade listens, on any free port unless options name one. */
  startFacade(
    options: Partial<FacadeOptions> & Pick<FacadeOptions, "logsDir">,
    parts: Partial<FacadeParts> & Pick<FacadeParts, "clouds">,
  ): Promise<Facade> {
    const defaults = { ...this.#where(), host: "127.0.0.1", port: 0, baseDomain: "localhost" }
    return this.#start("berth-facade", (shared, end) =>
      startFacade({ ...defaults, ...options }, { ...shared, ...parts }, end),
    )
  }

  /** Returns a logger whose lines are kept. */
  logger(name: string): Logger {
    const { level = "info" } = this.#options
    return createLogger({ level, name, destination: { write: (line) => void this.lines.push(line) } })
  }

  /** Stops what runs, the latest first. */
  async stop(): Promise<void> {
    for (const stop of [...this.#running].reverse()) await stop()
  }

  #where() {
    const { systemNamespace, watchNamespace } = this.#options
    return { systemNamespace, metricsPort: 0, ...(watchNamespace !== undefined && { watchNamespace }) }
  }

  async #start<Program extends Running>(
    name: ProgramName,
    start: (shared: Shared, end: AbortSignal) => Promise<Program>,
  ): Promise<Stoppable<Program>> {
    const { market, clientOf } = this.#options
    const client = await clientOf(name)
    const ending = new AbortController()
    const shared = { providers: {}, ownAccounts: [], architectures: [], ...market, client, logger: this.logger(name) }
    const program = await start(shared, ending.signal)
    const stop = async (): Promise<void> => {
      this.#running.delete(stop)
      ending.abort()
      await program.ended
      await client.close()
    }
    this.#running.add(stop)
    return { ...program, stop }
  }
}
