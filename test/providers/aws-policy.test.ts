import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { awsBuckets, bucketPolicy } from "../../src/clouds/aws/bucket-credentials.ts"
import { ecrRegistries, pullPolicy } from "../../src/clouds/aws/ecr.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { unending } from "./api-server.ts"
import { type AwsFront, startAwsFront } from "./aws-front.ts"

const { it } = needing(missingTool("moto"))

const KEY = { access_key_id: "AKIAOFATEST000000000", secret_access_key: "a-secret-of-a-test" }

interface Policy {
  Statement: { Effect: string; Action: string | string[] }[]
}

let moto: Moto
let front: AwsFront

beforeAll(async () => {
  moto = await startMoto()
  front = await startAwsFront(moto.url, 100)
})
afterAll(async () => {
  await front.stop()
  await moto.stop()
})

const actionsOf = ({ Statement }: Policy): string[] => Statement.flatMap(({ Action }) => Action)

/** Returns the policy for buckets and images from the documentation. */
async function documented(): Promise<Policy> {
  const page = await readFile(join(import.meta.dirname, "..", "..", "docs", "aws.md"), "utf8")
  const [, section = ""] = page.split("### Buckets and private images")
  return JSON.parse(/```json\n([\s\S]*?)```/.exec(section)?.[1] ?? "") as Policy
}

it("docs/aws.md allows exactly the actions that Berth and VMs' keys call for buckets and images", async () => {
  const options = { endpoint: front.url }
  const image = { registry: "123456789012.dkr.ecr.eu-west-1.amazonaws.com", repository: "team/app", reference: "1" }
  const scope = { bucket: "acme-jobs", prefix: "in", launch: "job-1", lifetimeSeconds: 3600 }
  await awsBuckets(options)(KEY, scope, unending())
  await ecrRegistries(options).login(KEY, { ...image, launch: "job-1" }, unending())
  // HeadBucket checks the access to a bucket. s3:ListBucket allows it.
  await awsAccounts(options)(KEY).bucket?.("acme-jobs", unending())
  const services = front.requests.map((request) => request.split(" ", 1)[0])
  expect(services).toEqual(["sts/us-east-1", "sts/eu-west-1", "ecr/eu-west-1", "s3/us-east-1"])
  expect(front.requests[2]).toMatch(/GetAuthorizationToken$/)
  expect(front.requests[3]).toMatch(/HEAD [/]acme-jobs/)
  const policies = [bucketPolicy(scope), pullPolicy(image)] as Policy[]
  const used = new Set([...policies.flatMap(actionsOf), "sts:GetFederationToken"])
  const policy = await documented()
  expect(actionsOf(policy).sort()).toEqual([...used].sort())
  expect(new Set(policy.Statement.map(({ Effect }) => Effect))).toEqual(new Set(["Allow"]))
})

it("a VM gets a pull key for its own repository only", () => {
  const of = (registry: string) =>
    pullPolicy({ registry, repository: "team/app" }) as { Statement: { Resource: string }[] }
  const resources = (registry: string) => of(registry).Statement.map(({ Resource }) => Resource)
  expect(resources("123456789012.dkr.ecr.eu-west-1.amazonaws.com")).toEqual([
    "*",
    "arn:aws:ecr:eu-west-1:123456789012:repository/team/app",
  ])
  expect(resources("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com")[1]).toMatch(
    /^arn:aws-us-gov:ecr:us-gov-west-1:/,
  )
  expect(resources("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn")[1]).toMatch(/^arn:aws-cn:ecr:cn-north-1:/)
  expect(ecrRegistries().serves("123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example")).toBe(false)
  expect(ecrRegistries().serves("public.ecr.aws")).toBe(false)
})
