import { afterAll, afterEach, beforeAll, expect, vi } from "vitest"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { cloudflareAccounts } from "../../src/clouds/cloudflare/account.ts"
import { CredentialsError, TransientError } from "../../src/core/outbound/errors.ts"
import { eventually } from "../harness/eventually.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { collect, unending } from "./api-server.ts"
import { type AwsFront, startAwsFront } from "./aws-front.ts"

const { describe, it } = needing(missingTool("moto"))

const KEY = { access_key_id: "AKIAOFATEST000000000", secret_access_key: "a-secret-of-a-test" }
const ACCOUNT = "123456789012"

let moto: Moto
let front: AwsFront

beforeAll(async () => {
  moto = await startMoto()
  front = await startAwsFront(moto.url, 2)
  for (const name of ["one", "two-eu", "three"]) await made("s3", "us-east-1", `/${name}`, { method: "PUT" })
  const repositories = { "us-east-1": ["team/app", "team/base", "tool"], "eu-west-1": ["team/app"] }
  for (const [region, names] of Object.entries(repositories))
    for (const name of names) await makeRepository(region, name)
})
afterAll(async () => {
  await front.stop()
  await moto.stop()
})
afterEach(() => {
  front.requests.length = 0
  front.refused.clear()
})

/** Creates an object without a signature: moto reads only the service and region of one. */
async function made(service: string, region: string, path: string, init: RequestInit): Promise<string> {
  const authorization = `AWS4-HMAC-SHA256 Credential=root/20260101/${region}/${service}/aws4_request, Signature=none`
  const response = await fetch(`${moto.url}${path}`, { ...init, headers: { authorization, ...init.headers } })
  const body = await response.text()
  expect(response.ok, body).toBe(true)
  return body
}

async function makeRepository(region: string, repositoryName: string): Promise<void> {
  const headers = {
    "content-type": "application/x-amz-json-1.1",
    "x-amz-target": "AmazonEC2ContainerRegistry_V20150921.CreateRepository",
  }
  await made("ecr", region, "/", { method: "POST", headers, body: JSON.stringify({ repositoryName }) })
}

const aws = (credentials: Record<string, string> = KEY) => awsAccounts({ endpoint: front.url })(credentials)

describe("AWS", () => {
  it("returns the account of a key, which is the pool of VMs", async () => {
    expect(await aws().verify(unending())).toEqual({ account: ACCOUNT })
    const { items } = await collect(aws().virtualMachinePools?.(unending()))
    const id = `arn:aws:iam::${ACCOUNT}:root`
    expect(items).toEqual([{ id, name: ACCOUNT, platform: "aws", type: "account", metadata: {} }])
  })

  it("lists all pages of buckets, with their regions", async () => {
    const { items, error } = await collect(aws().storages?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ id, name, metadata }) => [id, name, metadata["region"]])).toEqual([
      ["arn:aws:s3:::one", "one", "us-east-1"],
      ["arn:aws:s3:::two-eu", "two-eu", "eu-west-1"],
      ["arn:aws:s3:::three", "three", "us-east-1"],
    ])
    expect(items[0]).toMatchObject({
      platform: "s3",
      type: "bucket",
      metadata: { created: expect.stringMatching(/Z$/) },
    })
    expect(front.requests).toHaveLength(2)
  })

  it("lists all pages of repositories in every enabled region", async () => {
    const { items, error } = await collect(aws().repositories?.(unending()))
    expect(error).toBeUndefined()
    const registry = (region: string) => `${ACCOUNT}.dkr.ecr.${region}.amazonaws.com`
    expect(items.map(({ name }) => name).sort()).toEqual([
      `${registry("eu-west-1")}/team/app`,
      `${registry("us-east-1")}/team/app`,
      `${registry("us-east-1")}/team/base`,
      `${registry("us-east-1")}/tool`,
    ])
    expect(items[0]).toMatchObject({ platform: "ecr", type: "repository", id: expect.stringMatching(/^arn:aws:ecr:/) })
    expect(front.requests.filter((request) => request.startsWith("ecr/us-east-1 "))).toHaveLength(2)
  })

  it("keeps the other regions when one fails, and names it", async () => {
    front.refused.set("ecr/eu-west-1", { status: 400, code: "AccessDeniedException" })
    const { items, error } = await collect(aws().repositories?.(unending()))
    expect(items).toHaveLength(3)
    expect(error).toBeInstanceOf(CredentialsError)
    expect((error as Error).message).toMatch(/^ECR in eu-west-1: .*AccessDeniedException/)
  })

  it("uses the default regions of every account when it may not list the enabled ones", async () => {
    front.refused.set("ec2/us-east-1", { status: 403, code: "UnauthorizedOperation" })
    const { items, error } = await collect(aws().repositories?.(unending()))
    expect(error).toBeUndefined()
    expect(items).toHaveLength(4)
    expect(
      new Set(front.requests.filter((request) => request.startsWith("ecr/")).map((each) => each.split(" ")[0])).size,
    ).toBe(17)
  })

  it("finds existing buckets, and accepts no ARN or path as a name", async () => {
    expect(await aws().bucket?.("one", unending())).toEqual({ region: "us-east-1" })
    for (const name of ["missing-bucket", "arn:aws:s3:eu-west-1:1:accesspoint/x", "a/../b", "..", ""]) {
      expect(await aws().bucket?.(name, unending()), name).toBeUndefined()
    }
  })

  it("never uses the operator's own credentials", async () => {
    vi.stubEnv("AWS_ACCESS_KEY_ID", "AKIAOFTHEOPERATOR000")
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "of-the-operator")
    for (const none of [{}, { access_key_id: "", secret_access_key: "" }]) {
      await expect(aws(none).verify(unending())).rejects.toThrow(CredentialsError)
    }
    expect(front.requests).toEqual([])
    vi.unstubAllEnvs()
  })

  it("ends a discovery in AWS when it is aborted", async () => {
    front.refused.set("sts/us-east-1", "hang")
    const giveUp = new AbortController()
    const verified = aws().verify(giveUp.signal)
    await eventually(() => expect(front.requests).toHaveLength(1))
    giveUp.abort()
    await expect(verified).rejects.toMatchObject({ code: "Aborted" })
  })
})

describe("Cloudflare R2", () => {
  const accountId = "0123456789abcdef0123456789abcdef"
  const r2 = () => cloudflareAccounts({ endpointOf: () => front.url })({ ...KEY, account_id: accountId })

  it("calls Cloudflare R2 like S3 with the region auto", async () => {
    expect(await r2().verify(unending())).toEqual({ account: accountId })
    const { items } = await collect(r2().storages?.(unending()))
    expect(items.map(({ name }) => name)).toEqual(["one", "two-eu", "three"])
    expect(items[0]).toMatchObject({
      id: `https://${accountId}.r2.cloudflarestorage.com/one`,
      platform: "r2",
      type: "bucket",
      metadata: { region: "auto" },
    })
    expect(await r2().bucket?.("one", unending())).toEqual({ region: "auto" })
    expect(await r2().bucket?.("missing-bucket", unending())).toBeUndefined()
    expect(new Set(front.requests.map((request) => request.split(" ")[0]))).toEqual(new Set(["s3/auto"]))
  })

  it("builds no host from an invalid Cloudflare account id", () => {
    for (const account_id of ["evil.example/", "0123", `${accountId}.evil.example`, ""]) {
      expect(() => cloudflareAccounts()({ ...KEY, account_id })).toThrow(CredentialsError)
    }
  })

  it("verifies Cloudflare keys that may not list buckets", async () => {
    front.refused.set("s3/auto", { status: 403, code: "AccessDenied" })
    const { error } = await collect(r2().storages?.(unending()))
    expect(error).toBeInstanceOf(CredentialsError)
    // The key is known, and valid for some buckets only (https://developers.cloudflare.com/r2/api/error-codes/).
    expect(await r2().verify(unending())).toEqual({ account: accountId })
    front.refused.set("s3/auto", { status: 401, code: "Unauthorized" })
    await expect(r2().verify(unending())).rejects.toThrow(CredentialsError)
    front.refused.set("s3/auto", { status: 403, code: "SignatureDoesNotMatch" })
    await expect(r2().verify(unending())).rejects.toThrow(CredentialsError)
  })
})

describe("verification of an AWS key", () => {
  beforeAll(async () => {
    await fetch(`${moto.url}/moto-api/reset-auth`, { method: "POST", body: "0" })
  })

  it("rejects an unknown AWS key as an error of the credentials", async () => {
    const unknown = awsAccounts({ endpoint: moto.url })(KEY)
    await expect(unknown.verify(unending())).rejects.toThrow(CredentialsError)
    const listed = await collect(unknown.storages?.(unending()))
    expect(listed.items).toEqual([])
    expect(listed.error).toBeInstanceOf(CredentialsError)
    expect(await unknown.bucket?.("one", unending())).toBeUndefined()
  })

  it("reports an unreachable AWS as a temporary error, not one of the credentials", async () => {
    const nowhere = awsAccounts({ endpoint: "http://127.0.0.1:1" })(KEY)
    await expect(nowhere.verify(unending())).rejects.toThrow(TransientError)
  })
})
