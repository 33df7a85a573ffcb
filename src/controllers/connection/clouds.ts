import type { ConnectionType, StoredConnection } from "../../apis/connection.ts"
import type { CredentialFields } from "../../apis/credentials.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import type { Offer } from "../../apis/offer.ts"
import { ByCredentials } from "../../cloud/by-credentials.ts"
import type { Providers, RegionOpener } from "../../cloud/clouds.ts"
import { CredentialsError, InvalidRequestError } from "../../cloud/errors.ts"
import type { Cloud, CloudAccount, Clouds, Identity, LaunchSpec, Scope, Vm, VmRef } from "../../cloud/provider.ts"
import type { Store } from "../../kube/store.ts"
import { openCredentials } from "../../sealing/credentials.ts"
import { SealingError } from "../../sealing/keys.ts"
import { scrubbedError } from "../../sealing/scrub.ts"
import { accountOf } from "../launch/create.ts"
import { CredentialsUnusable, credentialsOf, isVerified } from "./credentials.ts"
import type { CredentialSources } from "./dependencies.ts"

export interface ConnectionCloudsOptions extends CredentialSources {
  providers: Providers
  connections: Pick<Store<StoredConnection>, "list">
  launches: Pick<Store<StoredLaunch>, "list">
  /** Opens the accounts that need no connection. */
  own: Clouds
}

/** Opened regions that are kept, because each has an SDK's connections. */
const MOST_KEPT = 256

/** Credentials that may open an account; undefined when they are not there or not for it. */
type Key = () => Promise<CredentialFields | undefined>

/**
 * Opens the accounts that Launches are pinned to, by whatever of their project still opens them: the copy that the
 * Launch carries, a verified connection to the same account, or the copy of another Launch there. So a key may be
 * replaced and revoked and its connection deleted while VMs run that were made by it. No error shows any of the
 * credentials.
 */
export class ConnectionClouds implements Clouds {
  readonly #options: ConnectionCloudsOptions
  readonly #regions = new ByCredentials<Cloud>(MOST_KEPT)

  constructor(options: ConnectionCloudsOptions) {
    this.#options = options
  }

  async open(account: CloudAccount): Promise<Cloud> {
    const { own, providers } = this.#options
    if (account.connection === undefined) return await own.open(account)
    const type = account.cloud as ConnectionType
    const openRegion = Object.hasOwn(providers, type) ? providers[type]?.region : undefined
    if (openRegion === undefined) {
      throw new CredentialsError("UnknownCloud", `this version makes no VMs by connections of type ${account.cloud}`)
    }
    const open = (fields: CredentialFields) => this.#region(account, fields, openRegion)
    return await AccountCloud.open(account, remembered(this.#openings(account, open)))
  }

  /** One and the same for the same credentials, whoever carries them. */
  #region({ cloud, region }: CloudAccount, fields: CredentialFields, openRegion: RegionOpener): Cloud {
    return this.#regions.get(fields, () => new DiscreetCloud(openRegion(fields, region), fields), `${cloud}/${region}`)
  }

  /** All that may open the account, in the order in which it is tried. Lazy: as a rule the first will do. */
  *#openings(account: CloudAccount, open: (fields: CredentialFields) => Cloud): Generator<Opening> {
    for (const key of this.#keys(account)) {
      yield async () => {
        const fields = await key()
        return fields && open(fields)
      }
    }
  }

  *#keys(account: CloudAccount): Generator<Key> {
    const { connections, launches } = this.#options
    const tried = new Set([account.sealedCredentials])
    if (account.sealedCredentials !== undefined) yield this.#keyOfCopy(account)
    for (const connection of connections.list()) yield this.#keyOfConnection(connection, account)
    for (const launch of launches.list()) {
      const other = accountOf(launch)
      if (isOver(launch) || !isSameAccount(other, account) || tried.has(other.sealedCredentials)) continue
      tried.add(other.sealedCredentials)
      yield this.#keyOfCopy(other)
    }
  }

  #keyOfCopy({ cloud, project = "", connection = "", sealedCredentials = "" }: CloudAccount): Key {
    const sealed = { type: cloud as ConnectionType, sealedCredentials }
    return async () => {
      const context = { project, name: connection }
      try {
        return (await openCredentials(this.#options.sealer, sealed, context)).fields
      } catch (error) {
        if (!(error instanceof SealingError)) throw error
        const message = `the copy of connection ${connection}'s credentials can't be opened: ${error.message}`
        throw new CredentialsError(error.fault, message)
      }
    }
  }

  #keyOfConnection(connection: StoredConnection, account: CloudAccount): Key {
    return async () => {
      const { spec, status } = connection
      if (spec.type !== account.cloud || status?.account !== account.account) return undefined
      if (account.account === undefined || !isVerified(connection, this.#options)) return undefined
      try {
        const { fields, project } = await credentialsOf(connection, this.#options)
        return project === account.project ? fields : undefined
      } catch (error) {
        if (error instanceof CredentialsUnusable) return undefined
        throw error
      }
    }
  }
}

function isSameAccount(a: CloudAccount, b: CloudAccount): boolean {
  return a.account !== undefined && a.account === b.account && a.cloud === b.cloud && a.project === b.project
}

/** Opens the region by some credentials; undefined when they are not for it. */
type Opening = () => Promise<Cloud | undefined>

/** The same openings whenever they are gone through, each made once: opening a seal costs more than the call it is for. */
function remembered(source: Iterator<Opening>): () => Generator<Opening> {
  const known: Opening[] = []
  return function* again() {
    for (let n = 0; ; n++) {
      if (known[n] === undefined) {
        const { value, done } = source.next()
        if (done) return
        known.push(once(value))
      }
      yield known[n] as Opening
    }
  }
}

function once(opening: Opening): Opening {
  let opened: ReturnType<Opening> | undefined
  return () => {
    opened ??= opening()
    return opened
  }
}

/** An account's region, asked by the first credentials that the cloud takes. */
class AccountCloud implements Cloud {
  readonly consistencySeconds: number
  readonly imageFor?: (offer: Offer) => Promise<string>
  readonly #openings: () => Iterable<Opening>
  readonly #account: CloudAccount

  private constructor(account: CloudAccount, openings: () => Iterable<Opening>, model?: Cloud) {
    this.#account = account
    this.#openings = openings
    this.consistencySeconds = model?.consistencySeconds ?? 0
    if (model?.imageFor === undefined) return
    this.imageFor = (offer) => this.#tryEach((cloud) => cloud.imageFor?.(offer) ?? Promise.reject(noImages(account)))
  }

  /** @throws CredentialsError when there is nothing that might open it */
  static async open(account: CloudAccount, openings: () => Iterable<Opening>): Promise<Cloud> {
    const first = await new AccountCloud(account, openings).#tryEach((cloud) => Promise.resolve(cloud))
    return new AccountCloud(account, openings, first)
  }

  launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    return this.#tryEach((cloud) => cloud.launch(spec, fence))
  }

  list(scope: Scope): Promise<Vm[]> {
    return this.#tryEach((cloud) => cloud.list(scope))
  }

  terminate(vm: VmRef, fence?: () => void): Promise<void> {
    return this.#tryEach((cloud) => cloud.terminate(vm, fence))
  }

  verify(): Promise<Identity> {
    return this.#tryEach((cloud) => cloud.verify())
  }

  async #tryEach<Answer>(ask: (cloud: Cloud) => Promise<Answer>): Promise<Answer> {
    let refusal: CredentialsError | undefined
    for (const opening of this.#openings()) {
      try {
        const cloud = await opening()
        if (cloud !== undefined) return await ask(cloud)
      } catch (error) {
        if (!(error instanceof CredentialsError)) throw error
        refusal ??= error
      }
    }
    const { cloud, account = "", project = "" } = this.#account
    const message = `project ${project} has no credentials any more that open ${cloud} account ${account}`
    throw refusal ?? new CredentialsError("NoCredentials", message)
  }
}

function noImages({ cloud }: CloudAccount): Error {
  return new InvalidRequestError("NoImages", `${cloud} has no images to choose from`)
}

/** A cloud whose errors, wherever they will be shown, have nothing of the credentials in them. */
class DiscreetCloud implements Cloud {
  readonly imageFor?: (offer: Offer) => Promise<string>
  readonly #cloud: Cloud
  readonly #fields: CredentialFields

  constructor(cloud: Cloud, fields: CredentialFields) {
    this.#cloud = cloud
    this.#fields = fields
    const imageFor = cloud.imageFor?.bind(cloud)
    if (imageFor !== undefined) this.imageFor = (offer) => this.#discreetly(imageFor(offer))
  }

  get consistencySeconds(): number {
    return this.#cloud.consistencySeconds
  }

  launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    return this.#discreetly(this.#cloud.launch(spec, fence))
  }

  list(scope: Scope): Promise<Vm[]> {
    return this.#discreetly(this.#cloud.list(scope))
  }

  terminate(vm: VmRef, fence?: () => void): Promise<void> {
    return this.#discreetly(this.#cloud.terminate(vm, fence))
  }

  verify(): Promise<Identity> {
    return this.#discreetly(this.#cloud.verify())
  }

  #discreetly<Answer>(answer: Promise<Answer>): Promise<Answer> {
    return answer.catch((error: unknown) => {
      throw scrubbedError(error, this.#fields)
    })
  }
}
