import { ByCredentials } from "../clouds/by-credentials.ts"
import type { Cloud, CloudAccount, Clouds } from "../clouds/cloud.ts"
import { accountOf } from "../clouds/cloud.ts"
import type { Providers, RegionOpener } from "../clouds/provider.ts"
import type { ConnectionType, StoredConnection } from "../core/apis/connection.ts"
import type { CredentialFields } from "../core/apis/credentials.ts"
import { isOver, type StoredLaunch } from "../core/apis/launch.ts"
import type { Store } from "../core/kube/store.ts"
import { CredentialsError, InvalidRequestError } from "../core/outbound/errors.ts"
import { openCredentials } from "../core/sealing/credentials.ts"
import { SealingError } from "../core/sealing/keys.ts"
import { scrubError } from "../core/sealing/scrub.ts"
import { type CredentialSources, CredentialsUnusable, isVerified, readCredentials } from "./credentials.ts"

export interface ConnectionCloudsOptions extends CredentialSources {
  providers: Providers
  connections: Pick<Store<StoredConnection>, "list">
  launches: Pick<Store<StoredLaunch>, "list">
  /** Opens the accounts that need no connection. */
  own: Clouds
}

/** Maximum number of cached clients of regions. Each has an SDK's connections. */
const CACHED_REGIONS = 256

/** Opens the account's region; undefined if the credentials are missing or not for it. */
type Opening = () => Promise<Cloud | undefined>

/** Runs a call on a cloud. */
type Run = <Answer>(call: (cloud: Cloud) => Promise<Answer>) => Promise<Answer>

/**
 * Opens the accounts that Launches are pinned to. The candidates are the Launch's own copy of the credentials, verified
 * connections of the account, and the copies of other Launches there. So VMs can be terminated after a key was revoked or
 * their connection was deleted. No error contains a part of the credentials.
 */
export class ConnectionClouds implements Clouds {
  readonly #options: ConnectionCloudsOptions
  readonly #regions = new ByCredentials<Cloud>(CACHED_REGIONS)

  constructor(options: ConnectionCloudsOptions) {
    this.#options = options
  }

  async open(account: CloudAccount): Promise<Cloud> {
    const { own, providers } = this.#options
    if (account.connection === undefined) return await own.open(account)
    const type = account.cloud as ConnectionType
    const openRegion = Object.hasOwn(providers, type) ? providers[type]?.region : undefined
    if (openRegion === undefined) {
      throw new CredentialsError(
        "UnknownCloud",
        `this version of Berth can't launch VMs with connections of type ${account.cloud}`,
      )
    }
    const open = (fields: CredentialFields): Cloud => this.#region(account, fields, openRegion)
    const run = failover(this.#openings(account, open), account)
    return through(await run((cloud) => Promise.resolve(cloud)), run)
  }

  /** Opens a region once per credentials, even if several Launches have a copy of them. */
  #region({ cloud, region }: CloudAccount, fields: CredentialFields, openRegion: RegionOpener): Cloud {
    return this.#regions.get(fields, () => redactErrors(openRegion(fields, region), fields), `${cloud}/${region}`)
  }

  /**
   * Returns the candidates in the order in which they are tried. The own copy comes first and usually works.
   * Connections and Launches are searched only after its rejection, once.
   */
  #openings(account: CloudAccount, open: (fields: CredentialFields) => Cloud): () => Iterable<Opening> {
    const opening = (credentials: () => Promise<CredentialFields | undefined>): Opening =>
      once(async () => {
        const fields = await credentials()
        return fields && open(fields)
      })
    const own = account.sealedCredentials === undefined ? [] : [opening(() => this.#openCopy(account))]
    let others: Opening[] | undefined
    const search = (): Opening[] => {
      others ??= this.#others(account).map(opening)
      return others
    }
    return function* candidates() {
      yield* own
      yield* search()
    }
  }

  /** Returns the account's verified connections, then the copies of other Launches there. */
  #others(account: CloudAccount): (() => Promise<CredentialFields | undefined>)[] {
    const connections = this.#options.connections.list().filter((connection) => isFor(connection, account))
    const copies = new Map(
      this.#options.launches
        .list()
        .filter((launch) => isSameAccount(launch, account) && !isOver(launch))
        .map((launch) => [launch.spec.sealedCredentials, accountOf(launch)]),
    )
    copies.delete(account.sealedCredentials)
    return [
      ...connections.map((connection) => () => this.#openConnection(connection, account)),
      ...[...copies.values()].map((copy) => () => this.#openCopy(copy)),
    ]
  }

  async #openCopy({ cloud, project = "", connection = "", sealedCredentials = "" }: CloudAccount) {
    const sealed = { type: cloud as ConnectionType, sealedCredentials }
    try {
      return (await openCredentials(this.#options.sealer, sealed, { project, name: connection })).fields
    } catch (error) {
      if (!(error instanceof SealingError)) throw error
      const message = `the copy of connection ${connection}'s credentials can't be opened: ${error.message}`
      throw new CredentialsError(error.reason, message)
    }
  }

  async #openConnection(connection: StoredConnection, account: CloudAccount): Promise<CredentialFields | undefined> {
    if (!isVerified(connection, this.#options)) return undefined
    try {
      const { fields, project } = await readCredentials(connection, this.#options)
      return project === account.project ? fields : undefined
    } catch (error) {
      if (error instanceof CredentialsUnusable) return undefined
      throw error
    }
  }
}

function isFor({ spec, status }: StoredConnection, { account, cloud }: CloudAccount): boolean {
  return account !== undefined && spec.type === cloud && status?.account === account
}

function isSameAccount({ spec }: StoredLaunch, { account, cloud, project }: CloudAccount): boolean {
  return account !== undefined && spec.account === account && spec.offer.cloud === cloud && spec.project === project
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined
  return () => {
    made ??= make()
    return made
  }
}

/**
 * Returns a cloud that passes every call to `run`. No other place lists the methods of a cloud.
 * @param model has the properties of the clouds that `run` calls
 */
function through(model: Cloud, run: Run): Cloud {
  return {
    consistencySeconds: model.consistencySeconds,
    ...(model.imageFor && { imageFor: (offer) => run((cloud) => cloud.imageFor?.(offer) ?? noImages()) }),
    ...(model.completeLaunch && {
      completeLaunch: (spec, fence) => run(async (cloud) => await cloud.completeLaunch?.(spec, fence)),
    }),
    ...(model.consoleOf && { consoleOf: (vm) => run(async (cloud) => await cloud.consoleOf?.(vm)) }),
    launch: (spec, fence) => run((cloud) => cloud.launch(spec, fence)),
    list: (scope) => run((cloud) => cloud.list(scope)),
    terminate: (vm, fence) => run((cloud) => cloud.terminate(vm, fence)),
    verify: () => run((cloud) => cloud.verify()),
  }
}

function noImages(): Promise<never> {
  return Promise.reject(new InvalidRequestError("NoImages", "the cloud has no images to choose from"))
}

/** Returns the cloud without any part of its credentials in its errors. */
function redactErrors(cloud: Cloud, fields: CredentialFields): Cloud {
  return through(cloud, async (call) => {
    try {
      return await call(cloud)
    } catch (error) {
      throw scrubError(error, fields)
    }
  })
}

/** Runs a call with the first candidate whose credentials the cloud accepts. It throws the first CredentialsError. */
function failover(openings: () => Iterable<Opening>, { cloud: type, account = "", project = "" }: CloudAccount): Run {
  return async (call) => {
    let rejection: CredentialsError | undefined
    for (const open of openings()) {
      try {
        const cloud = await open()
        if (cloud !== undefined) return await call(cloud)
      } catch (error) {
        if (!(error instanceof CredentialsError)) throw error
        rejection ??= error
      }
    }
    const message = `project ${project} has no credentials that open ${type} account ${account}`
    throw rejection ?? new CredentialsError("NoCredentials", message)
  }
}
