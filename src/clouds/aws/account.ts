import type { Repository } from "@aws-sdk/client-ecr"
import type { S3 } from "@aws-sdk/client-s3"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { type CloudError, CredentialsError } from "../../core/outbound/errors.ts"
import { abortedRead } from "../../core/outbound/read-errors.ts"
import {
  type AccountOpener,
  type Capabilities,
  type CapabilityQuestion,
  type DiscoveredResource,
  definedMetadata,
  type ExternalAccount,
  type ReachedBucket,
} from "../account.ts"
import type { Identity } from "../cloud.ts"
import { merged } from "../pages.ts"
import { awsCapabilities } from "./capabilities.ts"
import { aws } from "./definition.ts"
import { toCloudError } from "./errors.ts"
import type { NetworkSettings } from "./network.ts"
import { bucketPages, reachedBucket } from "./s3.ts"
import { ec2Client, type SdkConfig, sdkConfig } from "./sdk.ts"
import { AssumedRoles, hasRole, toAccessKey } from "./temporary-keys.ts"

/** Region for calls about the account. STS, S3 and EC2 answer there for all regions of the partition. */
const HOME_REGION = "us-east-1"

/**
 * Regions that every new account has enabled, for keys that may not list regions
 * (https://docs.aws.amazon.com/accounts/latest/reference/manage-acct-regions.html).
 */
const DEFAULT_REGIONS = [
  "ap-northeast-1",
  "ap-northeast-2",
  "ap-northeast-3",
  "ap-south-1",
  "ap-southeast-1",
  "ap-southeast-2",
  "ca-central-1",
  "eu-central-1",
  "eu-north-1",
  "eu-west-1",
  "eu-west-2",
  "eu-west-3",
  "sa-east-1",
  "us-east-1",
  "us-east-2",
  "us-west-1",
  "us-west-2",
]

/** Maximum page size of DescribeRepositories. */
const REPOSITORIES_A_PAGE = 1000

export interface AwsAccountOptions {
  /** Endpoint of an emulator for all services, instead of AWS' own. Never from a user's credentials. */
  endpoint?: string
  roles?: AssumedRoles
  /** Configured networks of VMs, by region. */
  networks?: Readonly<Record<string, NetworkSettings>>
}

/** Opens AWS accounts by an access key or a role. */
export function awsAccounts(options: AwsAccountOptions = {}): AccountOpener {
  return (credentials) => new AwsAccount(credentials, options)
}

class AwsAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #endpoint: { endpoint?: string }
  readonly #roles: AssumedRoles
  readonly #networks: Readonly<Record<string, NetworkSettings>>

  constructor(
    credentials: CredentialFields,
    { endpoint, roles = new AssumedRoles(), networks = {} }: AwsAccountOptions,
  ) {
    this.#credentials = credentials
    this.#roles = roles
    this.#networks = networks
    this.#endpoint = endpoint === undefined ? {} : { endpoint }
  }

  async verify(signal: AbortSignal): Promise<Identity> {
    return { account: await this.#accountId(signal) }
  }

  capabilities(question: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    const checks = {
      config: (region: string) => this.#config(region),
      networks: this.#networks,
      homeRegion: HOME_REGION,
      defaultRegions: DEFAULT_REGIONS,
      storages: (ended: AbortSignal) => this.storages(ended),
    }
    return awsCapabilities(checks, question, signal)
  }

  async *storages(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const client = await this.#s3()
    try {
      for await (const buckets of bucketPages(client, signal)) {
        yield buckets.map(({ name, region, created }) => ({
          id: `arn:aws:s3:::${name}`,
          name,
          platform: aws.buckets.platform,
          type: "bucket",
          metadata: definedMetadata({ region, created }),
        }))
      }
    } catch (error) {
      throw readError(error, { action: "ListBuckets", region: HOME_REGION, signal })
    } finally {
      client.destroy()
    }
  }

  async *repositories(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const regions = await this.#regions(signal)
    yield* merged(regions.map((region) => ({ place: `ECR in ${region}`, pages: this.#repositoriesOf(region, signal) })))
  }

  async *virtualMachinePools(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const name = await this.#accountId(signal)
    yield [{ id: `arn:aws:iam::${name}:root`, name, platform: "aws", type: "account", metadata: {} }]
  }

  async bucket(name: string, signal: AbortSignal): Promise<ReachedBucket | undefined> {
    const client = await this.#s3()
    try {
      return await reachedBucket(client, name, signal)
    } catch (error) {
      throw readError(error, { action: "HeadBucket", region: HOME_REGION, signal })
    } finally {
      client.destroy()
    }
  }

  async #accountId(signal: AbortSignal): Promise<string> {
    const { default: sdk } = await import("@aws-sdk/client-sts")
    const client = new sdk.STS(this.#config(HOME_REGION))
    try {
      const { Account } = await client.getCallerIdentity({}, { abortSignal: signal })
      if (Account !== undefined) return Account
      throw new CredentialsError("NoAccount", "AWS returned no account for this access key")
    } catch (error) {
      throw readError(error, { action: "GetCallerIdentity", region: HOME_REGION, signal })
    } finally {
      client.destroy()
    }
  }

  async #regions(signal: AbortSignal): Promise<string[]> {
    const ec2 = await ec2Client(this.#config(HOME_REGION))
    try {
      const { Regions = [] } = await ec2.describeRegions({}, { abortSignal: signal })
      return Regions.map(({ RegionName }) => RegionName).filter((name) => name !== undefined)
    } catch (error) {
      const explained = readError(error, { action: "DescribeRegions", region: HOME_REGION, signal })
      // If the credentials are wrong, the first region's call reports it.
      if (explained instanceof CredentialsError) return DEFAULT_REGIONS
      throw explained
    } finally {
      ec2.destroy()
    }
  }

  async *#repositoriesOf(region: string, signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const { default: sdk } = await import("@aws-sdk/client-ecr")
    const client = new sdk.ECRClient(this.#config(region))
    try {
      const paging = { client, pageSize: REPOSITORIES_A_PAGE }
      for await (const { repositories = [] } of sdk.paginateDescribeRepositories(paging, {}, { abortSignal: signal })) {
        yield repositories.map((repository) => resourceOf(repository, region))
      }
    } catch (error) {
      throw readError(error, { action: "DescribeRepositories", region, signal })
    } finally {
      client.destroy()
    }
  }

  async #s3(): Promise<S3> {
    const { default: sdk } = await import("@aws-sdk/client-s3")
    return new sdk.S3({ ...this.#config(HOME_REGION), followRegionRedirects: true, ...pathStyle(this.#endpoint) })
  }

  #config(region: string): SdkConfig {
    const config = sdkConfig(this.#credentials, { region, roles: this.#roles })
    const { accessKeyId, secretAccessKey } = toAccessKey(this.#credentials)
    if (hasRole(this.#credentials) || (accessKeyId !== "" && secretAccessKey !== ""))
      return { ...config, ...this.#endpoint }
    throw new CredentialsError("NoCredentials", "access_key_id and secret_access_key are required")
  }
}

/** An emulator has no host name for each bucket. */
function pathStyle({ endpoint }: { endpoint?: string }): { forcePathStyle?: boolean } {
  return endpoint === undefined ? {} : { forcePathStyle: true }
}

function resourceOf({ repositoryArn, repositoryUri, createdAt }: Repository, region: string): DiscoveredResource {
  return {
    id: repositoryArn ?? "",
    name: repositoryUri ?? "",
    platform: aws.images.platform,
    type: "repository",
    metadata: definedMetadata({ region, created: createdAt?.toISOString() }),
  }
}

/** Classifies a failed call. A cancelled call is not an error of the account. */
function readError(
  error: unknown,
  { signal, ...call }: { action: string; region: string; signal: AbortSignal },
): CloudError {
  return signal.aborted ? abortedRead(error) : toCloudError(error, { ...call, changes: false })
}
