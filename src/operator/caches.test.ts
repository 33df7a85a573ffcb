import { expect, test } from "vitest"
import { ENV_SECRET_CACHE, type EnvSecret } from "./caches.ts"

test("the cache of Secrets keeps their keys, and no value, not that of kubectl's annotation either", () => {
  const value = Buffer.from("hunter2").toString("base64")
  const applied = { "kubectl.kubernetes.io/last-applied-configuration": `{"data":{"token":"${value}"}}` }
  const secret = {
    metadata: { name: "s", namespace: "n", uid: "u", resourceVersion: "1", annotations: applied },
    type: "berth.dev/env",
    data: { token: value },
  }
  const kept = ENV_SECRET_CACHE.transform(secret as unknown as EnvSecret)
  expect(kept).toMatchObject({ metadata: { name: "s", namespace: "n" }, keys: { token: null } })
  expect(JSON.stringify(kept)).not.toMatch(new RegExp(`hunter2|${value}`))
})
