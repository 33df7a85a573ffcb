import type { CredentialFields } from "../../core/apis/credentials.ts"
import { InvalidRequestError } from "../../core/outbound/errors.ts"
import type { BucketOpener, BucketScope, ScopedBucket } from "../bucket-access.ts"
import { blobEndpoint, blobService, containerIn } from "./blobs.ts"
import { type AzureAccountOptions, azureError, signedIn } from "./signed-in.ts"

/** Maximum lifetime that Azure accepts: seven days. */
const MOST_SECONDS = 7 * 24 * 3600

/** Start of a signature's validity, seconds before now: clocks differ. */
const CLOCK_SKEW_SECONDS = 900

/** Read, add, create, write, delete, list. */
const PERMISSIONS = "racwdl"

/** Read, list. */
const READING_PERMISSIONS = "rl"

/**
 * Issues signatures for one container only, by a user delegation key
 * (https://learn.microsoft.com/azure/storage/blobs/storage-blob-user-delegation-sas-create-javascript). A signature
 * expires with the VM, at most after seven days. It can't be limited to a folder, except in accounts with hierarchical
 * namespaces. It is not renewed: rclone reads it only at its start.
 */
export function azureBuckets(options: AzureAccountOptions = {}): BucketOpener {
  return async (credentials, scope, signal) => {
    try {
      return await access(credentials, scope, { ...options, signal })
    } catch (error) {
      throw azureError(error, signal)
    }
  }
}

async function access(
  credentials: CredentialFields,
  { bucket, prefix, lifetimeSeconds, readOnly }: BucketScope,
  { signal, ...options }: AzureAccountOptions & { signal: AbortSignal },
): Promise<ScopedBucket> {
  const { account, container } = containerIn(bucket) ?? {}
  if (account === undefined || container === undefined) {
    throw new InvalidRequestError("MalformedName", `"${bucket}" is not a container: write account/container`)
  }
  const { ContainerSASPermissions, generateBlobSASQueryParameters, SASProtocol } = await import("@azure/storage-blob")
  const service = await blobService(blobEndpoint(account), await signedIn(credentials, options, signal))
  const now = Date.now()
  const startsOn = new Date(now - CLOCK_SKEW_SECONDS * 1000)
  const expiresOn = new Date(now + Math.min(lifetimeSeconds, MOST_SECONDS - CLOCK_SKEW_SECONDS) * 1000)
  const key = await service.getUserDelegationKey(startsOn, expiresOn, { abortSignal: signal })
  const permissions = ContainerSASPermissions.parse(readOnly ? READING_PERMISSIONS : PERMISSIONS)
  const values = { containerName: container, permissions, startsOn, expiresOn, protocol: SASProtocol.Https }
  const signature = generateBlobSASQueryParameters(values, key, account).toString()
  return {
    path: prefix === "" ? container : `${container}/${prefix}`,
    // Options of rclone's backend (https://rclone.org/azureblob/).
    remote: { type: "azureblob", sas_url: `${blobEndpoint(account)}/${container}?${signature}` },
  }
}
