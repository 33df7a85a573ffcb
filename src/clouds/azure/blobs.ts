import type { BlobServiceClient } from "@azure/storage-blob"
import type { SignedIn } from "./signed-in.ts"

export interface BlobContainer {
  account: string
  container: string
}

/** Parses `account/container`. A container is named with its storage account, because its own name is not unique. */
export function containerIn(bucket: string): BlobContainer | undefined {
  const [, account, container] = /^([a-z0-9]{3,24})\/([a-z0-9$-]{3,63})$/.exec(bucket) ?? []
  return account === undefined || container === undefined ? undefined : { account, container }
}

/** Returns the address of a storage account's containers. */
export function blobEndpoint(account: string): string {
  return `https://${account}.blob.core.windows.net`
}

export async function blobService(
  endpoint: string,
  { credential, clientOptions }: SignedIn,
): Promise<BlobServiceClient> {
  const { BlobServiceClient } = await import("@azure/storage-blob")
  // The storage SDK has other names for the same options.
  const options = { httpClient: clientOptions.httpClient, retryOptions: { maxTries: 1 } } as unknown as BlobOptions
  return new BlobServiceClient(endpoint, credential, options)
}

type BlobOptions = NonNullable<ConstructorParameters<typeof BlobServiceClient>[2]>
