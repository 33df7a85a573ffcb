import type { DiscoveredResource, OpenAccount } from "../clouds/account.ts"
import type { Clock } from "../core/apis/clock.ts"
import type { StoredConnection } from "../core/apis/connection.ts"
import { newestFirst } from "../core/apis/creation-times.ts"
import type { CredentialFields } from "../core/apis/credentials.ts"
import type { Logger } from "../core/apis/logger.ts"
import { CloudError } from "../core/outbound/errors.ts"
import { scrub } from "../core/sealing/scrub.ts"
import { RecentAnswers } from "./recent-answers.ts"
import { withTimeLimit } from "./timeout.ts"

/** Kinds of resources that can be discovered, by the name of the account's method. */
export type DiscoverySort = "storages" | "repositories" | "virtualMachinePools"

/** A discovered resource, and the connection that found it. */
export interface Found {
  connection: StoredConnection
  resource: DiscoveredResource
}

/** Reason why a connection's part is incomplete. It contains none of its credentials. */
export interface DiscoveryFailure {
  connection: StoredConnection
  /** One word, from the provider if it has one. */
  reason: string
  message: string
}

/** Results of the connections in a stable order: connections by creation, resources by name. */
export interface Discovered {
  found: Found[]
  failures: DiscoveryFailure[]
}

/** Returns a connection's credentials in clear. @throws CloudError whose message says why they are unavailable */
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
  /** Timeout of one connection. Its part contains the resources found until then. */
  limitSeconds: number
  /** Time for which a complete answer is cached. */
  keptSeconds: number
  /** Maximum number of resources of one connection. */
  mostResources: number
}

export const DISCOVERY_DEFAULTS: DiscoverySettings = { limitSeconds: 15, keptSeconds: 30, mostResources: 10_000 }

/** Part of one connection. */
interface Part {
  resources: readonly DiscoveredResource[]
  failure?: Omit<DiscoveryFailure, "connection">
}

/**
 * Lists the resources of the accounts that connections open, all at the same time. A slow or failing connection does
 * not affect the others.
 */
export class Discoverer {
  readonly #options: DiscovererOptions
  readonly #settings: DiscoverySettings
  readonly #recent: RecentAnswers<Part>

  constructor(options: DiscovererOptions) {
    this.#options = options
    this.#settings = { ...DISCOVERY_DEFAULTS, ...options.settings }
    this.#recent = new RecentAnswers(options.clock, this.#settings.keptSeconds)
  }

  /** Returns the resources and failures of all connections. Never rejects because of a connection. */
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

  /**
   * Returns the part of one connection. Changed credentials have another version of the connection, so no old answer is
   * used.
   */
  #part(sort: DiscoverySort, connection: StoredConnection): Promise<Part> {
    const { uid, resourceVersion } = connection.metadata
    const isWhole = ({ failure }: Part) => failure === undefined
    return this.#recent.get(`${uid}/${resourceVersion}/${sort}`, () => this.#look(sort, connection), isWhole)
  }

  async #look(sort: DiscoverySort, connection: StoredConnection): Promise<Part> {
    const resources: DiscoveredResource[] = []
    let credentials: CredentialFields = {}
    try {
      await withTimeLimit(this.#options.clock, this.#settings.limitSeconds, async (signal, race) => {
        credentials = await race(this.#options.credentialsOf(connection))
        const discovery = this.#options.openAccount(connection.spec.type, credentials)?.[sort]?.(signal)
        if (discovery === undefined) return
        const pages = discovery[Symbol.asyncIterator]()
        try {
          for (let page = await race(pages.next()); !page.done; page = await race(pages.next()))
            this.#add(page.value, resources)
        } finally {
          // The iterator may be in a call that ignores the signal, so its end is not awaited.
          void pages.return?.().catch(() => undefined)
        }
      })
      return { resources: resources.sort(byName) }
    } catch (error) {
      return { resources: resources.sort(byName), failure: this.#failureOf(error, connection, credentials) }
    }
  }

  /** Adds a page of resources. @throws CloudError if there are too many */
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
      return { reason: scrub(error.code, credentials), message: scrub(error.message, credentials) }
    }
    if (error instanceof TooMany) return { reason: "TooMany", message: error.message }
    const { namespace, name: connection } = metadata
    const message = scrub(error instanceof Error ? (error.stack ?? error.message) : String(error), credentials)
    this.#options.logger.error({ namespace, connection, error: message }, "internal error in discovery")
    return { reason: "InternalError", message: "internal error in Berth; its log has details" }
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
