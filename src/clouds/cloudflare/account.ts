import type { S3 } from "@aws-sdk/client-s3"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { proxiedAgents } from "../../core/apis/proxy.ts"
import { type CloudError, CredentialsError } from "../../core/outbound/errors.ts"
import { toReadError } from "../../core/outbound/read-errors.ts"
import {
  type AccountOpener,
  type Capabilities,
  type CapabilityQuestion,
  type DiscoveredResource,
  definedMetadata,
  type ExternalAccount,
} from "../account.ts"
import { listable } from "../capabilities.ts"
import type { Identity } from "../cloud.ts"
import { cloudflare } from "./definition.ts"

/** R2 has no regions to choose from: requests are signed for this one. */
const REGION = "auto"
const BUCKETS_A_PAGE = 1000

export interface CloudflareAccountOptions {
  /** Endpoint of an account's R2. Default: Cloudflare's own (https://developers.cloudflare.com/r2/api/s3/api/). */
  endpointOf?: (accountId: string) => string
}

/** Opens Cloudflare accounts' R2 by an S3 key pair. */
export function cloudflareAccounts(options: CloudflareAccountOptions = {}): AccountOpener {
  return (credentials) => new CloudflareAccount(credentials, options)
}

const ownEndpoint = (accountId: string): string => `https://${accountId}.r2.cloudflarestorage.com`

class CloudflareAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #accountId: string
  readonly #endpoint: string

  constructor(credentials: CredentialFields, { endpointOf = ownEndpoint }: CloudflareAccountOptions) {
    const { account_id: accountId = "" } = credentials
    // The id becomes part of a host name.
    if (!/^[0-9a-f]{32}$/.test(accountId)) {
      throw new CredentialsError(
        "MalformedAccountId",
        "account_id must be 32 characters of 0-9 and a-f, as Cloudflare shows it",
      )
    }
    this.#credentials = credentials
    this.#accountId = accountId
    this.#endpoint = endpointOf(accountId)
  }

  /**
   * A token for some buckets only may not list them. The answer "access denied" (not "unknown key") proves that token.
   */
  async verify(signal: AbortSignal): Promise<Identity> {
    try {
      for await (const _ of this.#pages(signal)) break
    } catch (error) {
      const explained = r2Error(error, signal)
      if (explained.code !== "AccessDenied") throw explained
    }
    return { account: this.#accountId }
  }

  async capabilities(_: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    return { buckets: await listable("buckets", (ended) => this.storages(ended), signal) }
  }

  async *storages(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    try {
      for await (const { Buckets = [] } of this.#pages(signal)) {
        yield Buckets.map(({ Name: name = "", CreationDate }) => ({
          id: `${ownEndpoint(this.#accountId)}/${name}`,
          name,
          platform: cloudflare.buckets.platform,
          type: "bucket",
          metadata: definedMetadata({ region: REGION, created: CreationDate?.toISOString() }),
        }))
      }
    } catch (error) {
      throw r2Error(error, signal)
    }
  }

  async bucket(name: string, signal: AbortSignal): Promise<{ region: string } | undefined> {
    if (!/^[a-z0-9][a-z0-9-]{1,62}$/.test(name)) return undefined
    const client = await this.#client()
    try {
      await client.headBucket({ Bucket: name }, { abortSignal: signal })
      return { region: REGION }
    } catch (error) {
      const status = statusOf(error)
      if (status === 403 || status === 404) return undefined
      throw r2Error(error, signal)
    } finally {
      client.destroy()
    }
  }

  async *#pages(signal: AbortSignal) {
    const { default: sdk } = await import("@aws-sdk/client-s3")
    const client = await this.#client()
    try {
      yield* sdk.paginateListBuckets({ client, pageSize: BUCKETS_A_PAGE }, {}, { abortSignal: signal })
    } finally {
      client.destroy()
    }
  }

  /** Always sets explicit credentials: without them the SDK would find the operator's own. */
  async #client(): Promise<S3> {
    const { access_key_id: accessKeyId = "", secret_access_key: secretAccessKey = "" } = this.#credentials
    if (accessKeyId === "" || secretAccessKey === "")
      throw new CredentialsError("NoCredentials", "access_key_id and secret_access_key are required")
    const { default: sdk } = await import("@aws-sdk/client-s3")
    const requestHandler = proxiedAgents()
    return new sdk.S3({
      ...(requestHandler && { requestHandler }),
      endpoint: this.#endpoint,
      region: REGION,
      credentials: { accessKeyId, secretAccessKey },
      forcePathStyle: true,
      maxAttempts: 3,
    })
  }
}

function statusOf(error: unknown): number | undefined {
  return (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode
}

function r2Error(error: unknown, signal: AbortSignal): CloudError {
  return toReadError(error, signal, (thrown) => {
    const { name, message } = thrown as Error
    return { status: statusOf(thrown), code: name, message: message || name }
  })
}
