import { generateKeyPairSync } from "node:crypto"
import { afterAll, beforeAll, expect } from "vitest"
import { gcpAccounts } from "../../src/clouds/gcp/account.ts"
import { startFakeGcs } from "../fake-gcs.ts"
import { missingTool, needing } from "../needing.ts"
import type { TiedProcess } from "../tied-process.ts"
import { collect, redirectTo, unending } from "./api-server.ts"

const PROJECT = "ship-yard"
const REGION = /^[a-z0-9-]+$/

const here = needing(missingTool("fake-gcs-server"))

here.describe("buckets of a real server of Google's JSON API", () => {
  let storage: TiedProcess
  beforeAll(async () => {
    storage = await startFakeGcs()
    for (const name of ["alpha", "beta", "gamma"]) {
      const body = JSON.stringify({ name, location: "EU" })
      const headers = { "content-type": "application/json" }
      const made = await fetch(`${storage.address}/storage/v1/b?project=${PROJECT}`, { method: "POST", headers, body })
      expect(made.status).toBe(200)
    }
  })
  afterAll(() => storage?.stop())

  /** The account of a key for which Google's token endpoint, which the server lacks, issues a token. */
  function account() {
    const toStorage = redirectTo(() => storage.address)
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
    const keyfile_json = JSON.stringify({
      type: "service_account",
      project_id: PROJECT,
      private_key_id: "key-1",
      private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
      client_email: `berth@${PROJECT}.iam.gserviceaccount.com`,
      token_uri: "https://oauth2.googleapis.com/token",
      universe_domain: "googleapis.com",
    })
    const token = { access_token: "ya29.of-a-test", expires_in: 3599, token_type: "Bearer" }
    return gcpAccounts({
      send: async (input, init) => {
        const { host } = new URL(input instanceof Request ? input.url : input)
        return host === "storage.googleapis.com" ? await toStorage(input, init) : Response.json(token)
      },
    })({ gcp_project_id: PROJECT, keyfile_json })
  }

  here.it("are listed", async () => {
    const { items, error } = await collect(account().storages?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name }) => name)).toEqual(["alpha", "beta", "gamma"])
    expect(items[0]).toMatchObject({
      id: "//storage.googleapis.com/projects/_/buckets/alpha",
      platform: "gcs",
      type: "bucket",
      metadata: { region: expect.stringMatching(REGION), created: expect.stringMatching(/^20/) },
    })
  })

  here.it("are found by their names", async () => {
    expect(await account().bucket?.("beta", unending())).toEqual({ region: expect.stringMatching(REGION) })
    for (const name of ["missing-bucket", "..", "a/b", "beta/../../b"])
      expect(await account().bucket?.(name, unending()), name).toBeUndefined()
  })
})
