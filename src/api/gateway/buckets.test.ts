import { expect, test } from "vitest"
import type { StoredConnection } from "../../core/apis/connection.ts"
import { toMetadataName } from "../../core/apis/names.ts"
import { BucketAccessError, connectedBuckets } from "./buckets.ts"

const SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"

const connection = (name: string): StoredConnection => ({
  apiVersion: "berth.dev/v1alpha1",
  kind: "Connection",
  metadata: {
    name,
    namespace: "team",
    uid: name,
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: "2026-01-01T00:00:00Z",
  },
  spec: { type: "aws" },
})

/** Returns the error that a job gets if its provider quotes the key in an error with this name. */
async function toldOf(name: string): Promise<Error> {
  const quoting = Object.assign(new Error(`the signature by ${SECRET} does not match`), { name })
  const open = connectedBuckets({
    connections: {
      cached: () => undefined,
      live: () => Promise.resolve([connection(toMetadataName("My_Store") ?? "")]),
    },
    credentials: () => Promise.resolve({ secret_access_key: SECRET }),
    providers: { aws: { find: () => Promise.reject(quoting), access: () => Promise.reject(quoting) } },
  })
  const volumes = { data: { bucket: "b", mountPath: "/data" } }
  return await open({ namespace: "team", launch: "l-1", lifetimeSeconds: 60, volumes }).then(
    () => new Error("opened"),
    (error: unknown) => error as Error,
  )
}

test("a provider's rejection is shown without the key that it quotes", async () => {
  const refusal = await toldOf("CredentialsError")
  expect(refusal).toBeInstanceOf(BucketAccessError)
  expect(refusal.message).toContain("My_Store: the signature by")
  expect(refusal.message).toContain("does not match")
  expect(refusal.message).not.toContain(SECRET.slice(0, 12))
})

test("a provider's temporary error, which is logged, is redacted as well", async () => {
  const failure = await toldOf("TransientError")
  expect(failure.name).toBe("TransientError")
  expect(`${failure.message} ${failure.stack}`).not.toContain(SECRET.slice(0, 12))
})

test("a connection that the cache does not have yet opens a bucket", async () => {
  const created: StoredConnection[] = []
  const open = connectedBuckets({
    connections: { cached: () => [], live: () => Promise.resolve(created) },
    credentials: () => Promise.resolve({}),
    providers: { aws: { find: async () => ({}), access: async () => ({ path: "b", remote: { type: "s3" } }) } },
  })
  const request = {
    namespace: "team",
    launch: "l-1",
    lifetimeSeconds: 60,
    volumes: { data: { bucket: "b", mountPath: "/d" } },
  }
  await expect(open(request)).rejects.toThrow(BucketAccessError)
  created.push(connection("new"))
  expect(await open(request)).toEqual({ data: { path: "b", remote: { type: "s3" } } })
})
