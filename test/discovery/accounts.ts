import type { DiscoveredResource, ExternalAccount } from "../../src/clouds/account.ts"
import type { ConnectionType, StoredConnection } from "../../src/core/apis/connection.ts"

/** Returns a connection as stored by the API server. */
export function connection(name: string, changes: { type?: ConnectionType; created?: string; version?: string } = {}) {
  const { type = "aws", created = "2026-01-01T00:00:00Z", version = "1" } = changes
  return {
    metadata: { name, namespace: "yard", uid: `uid-of-${name}`, resourceVersion: version, creationTimestamp: created },
    spec: { type, sealedCredentials: "sealed" },
  } as StoredConnection
}

export function bucket(name: string): DiscoveredResource {
  return { id: `id-of-${name}`, name, platform: "s3", type: "bucket", metadata: {} }
}

/** Returns an account whose buckets come in these pages. An Error or `never` in a page's place is thrown or awaited. */
export function accountWith(...pages: (readonly string[] | Error | Promise<never>)[]): ExternalAccount {
  return {
    verify: async () => ({ account: "1" }),
    async *storages() {
      for (const page of pages) {
        if (page instanceof Error) throw page
        yield (await page).map(bucket)
      }
    },
  }
}

/** Never resolves, whatever its signal does. */
export const never = (): Promise<never> => new Promise(() => undefined)
