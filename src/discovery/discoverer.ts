import type { Clock } from "../apis/clock.ts"
import type { StoredConnection } from "../apis/connection.ts"
import { newestFirst } from "../apis/creation-times.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { Logger } from "../apis/logger.ts"
import type { DiscoveredResource, OpenAccount } from "../cloud/account.ts"
import { CloudError } from "../cloud/errors.ts"
import { scrubbed } from "../sealing/scrub.ts"
import { RecentAnswers } from "./recent-answers.ts"
import { within } from "./time-limit.ts"

/** What can be looked for, by the name of the account's method. */
export type DiscoverySort = "storages" | "repositories" | "virtualMachinePools"

/** What was found, and by which connection. */
export interface Found {
  connection: StoredConnection
  resource: DiscoveredResource
}

/** Why a connection's part is not whole; none of its credentials is in it. */
export interface DiscoveryFailure {
  connection: StoredConnection
  /** One word, the provider's own where it has one. */
  reason: string
  message: string
}

/** What the connections gave, in a stable order: connections as they were made, resources by name. */
export interface Discovered {
  found: Found[]
  failures: DiscoveryFailure[]
}

/**
 * A connection's credentials in clear. @throws CloudError whose message says why they can't be had
 */
export type CredentialsOf = (connection: StoredConnection) => Promise<CredentialFields>

export interface DiscovererOptions {
  openAccount: OpenAccount
  credentialsOf: CredentialsOf
  clock: Clock
  logger: Logger
  settings?: Partial<DiscoverySettings>
}

/** All durations are in seconds. */
export interface DiscoverySettings {
  /** How long one connection may take: what has come by then is its part. */
  limitSeconds: number
  /** How long an answer that is whole may be given again. */
  keptSeconds: number
  /** What one connection may bring, at most. */
  mostResources: number
}

export const DISCOVERY_DEFAULTS: DiscoverySettings = { limitSeconds: 15, keptSeconds: 30, mostResources: 10_000 }

/** One connection's part. */
interface Part {
  resources: readonly DiscoveredResource[]
  failure?: Omit<DiscoveryFailure, "connection">
}

/** Looks into the accounts that connections open, all at the same time. None holds up or takes anything from another. */
export class Discoverer {
  readonly #options: DiscovererOptions
  readonly #settings: DiscoverySettings
  readonly #recent: RecentAnswers<Part>

  constructor(options: DiscovererOptions) {
    this.#options = options
    this.#settings = { ...DISCOVERY_DEFAULTS, ...options.settings }
    this.#recent = new RecentAnswers(options.clock, this.#settings.keptSeconds)
  }

  /** Never rejects because of a connection. */
  async discover(sort: DiscoverySort, connections: readonly StoredConnection[]): Promise<Discovered> {
    const inOrder = connections.toSorted(newestFirst).reverse()
    const parts = await Promise.all(
      inOrder.map(async (connection) => ({ connection, ...(await this.#part(sort, connection)) })),
    )
    return {
      found: parts.flatMap(({ connection, resources }) => resources.map((resource) => ({ connection, resource }))),
      failures: parts.flatMap(({ connection, failure }) => (failure === undefined ? [] : [{ connection, ...failure }])),
    }
  }

  /** Changed credentials make another version of the connection, and so another question. */
  #part(sort: DiscoverySort, connection: StoredConnection): Promise<Part> {
    const { uid, resourceVersion } = connection.metadata
    const isWhole = ({ failure }: Part) => failure === undefined
    return this.#recent.get(`${uid}/${resourceVersion}/${sort}`, () => this.#look(sort, connection), isWhole)
  }

  async #look(sort: DiscoverySort, connection: StoredConnection): Promise<Part> {
    const resources: DiscoveredResource[] = []
    let credentials: CredentialFields = {}
    try {
      await within(this.#options.clock, this.#settings.limitSeconds, async (signal, race) => {
        credentials = await race(this.#options.credentialsOf(connection))
        const discovery = this.#options.openAccount(connection.spec.type, credentials)?.[sort]?.(signal)
        if (discovery === undefined) return
        const pages = discovery[Symbol.asyncIterator]()
        try {
          for (let page = await race(pages.next()); !page.done; page = await race(pages.next()))
            this.#add(page.value, resources)
        } finally {
          // It may be in the middle of a call that takes no notice; nobody waits for it.
          void pages.return?.().catch(() => undefined)
        }
      })
      return { resources: resources.sort(byName) }
    } catch (error) {
      return { resources: resources.sort(byName), failure: this.#failureOf(error, connection, credentials) }
    }
  }

  /** @throws CloudError when it is too much */
  #add(page: readonly DiscoveredResource[], resources: DiscoveredResource[]): void {
    const { mostResources } = this.#settings
    resources.push(...page.slice(0, mostResources - resources.length))
    if (resources.length >= mostResources) throw new TooMany(mostResources)
  }

  #failureOf(
    error: unknown,
    { metadata }: StoredConnection,
    credentials: CredentialFields,
  ): NonNullable<Part["failure"]> {
    if (error instanceof CloudError) {
      return { reason: scrubbed(error.code, credentials), message: scrubbed(error.message, credentials) }
    }
    if (error instanceof TooMany) return { reason: "TooMany", message: error.message }
    const { namespace, name: connection } = metadata
    const message = scrubbed(error instanceof Error ? (error.stack ?? error.message) : String(error), credentials)
    this.#options.logger.error({ namespace, connection, error: message }, "discovery failed by a fault of ours")
    return { reason: "InternalError", message: "it failed by a fault of ours, which the log has" }
  }
}

class TooMany extends Error {
  constructor(most: number) {
    super(`only the first ${most} are shown`)
  }
}

function byName(a: DiscoveredResource, b: DiscoveredResource): number {
  return compare(a.name, b.name) || compare(a.id, b.id)
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
