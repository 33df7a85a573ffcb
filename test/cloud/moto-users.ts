import { expect } from "vitest"
import type { Moto } from "../moto.ts"

/** Users of moto's IAM, whose policies count while `withoutAuthentication` allows no calls. */

/** Actions of the policies of docs/aws.md that a check of VMs needs. */
export const VM_ACTIONS = [
  "ec2:CreateSecurityGroup",
  "ec2:CreateTags",
  "ec2:DescribeInstances",
  "ec2:DescribeSecurityGroups",
  "ec2:DescribeVpcs",
  "ec2:RunInstances",
  "ssm:GetParameter",
]

export interface UserKey extends Record<string, string> {
  access_key_id: string
  secret_access_key: string
}

async function iam(moto: Pick<Moto, "url">, parameters: Record<string, string>): Promise<string> {
  const authorization =
    "AWS4-HMAC-SHA256 Credential=root/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=none"
  const body = new URLSearchParams({ Version: "2010-05-08", ...parameters })
  const answer = await fetch(moto.url, { method: "POST", headers: { authorization }, body })
  const text = await answer.text()
  expect(answer.ok, text).toBe(true)
  return text
}

/** Lets moto check keys and policies after this number of calls (https://docs.getmoto.org/en/latest/docs/iam.html). */
export async function withoutAuthentication(moto: Pick<Moto, "url">, calls: number): Promise<void> {
  await fetch(`${moto.url}/moto-api/reset-auth`, { method: "POST", body: String(calls) })
}

/** Replaces the actions that the policy of a user allows. */
export async function allow(moto: Pick<Moto, "url">, UserName: string, actions: readonly string[]): Promise<void> {
  const document = { Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: actions, Resource: "*" }] }
  const PolicyDocument = JSON.stringify(document)
  await iam(moto, { Action: "PutUserPolicy", UserName, PolicyName: "berth", PolicyDocument })
}

/** Returns the key of a new user whose policy allows these actions. */
export async function makeUser(
  moto: Pick<Moto, "url">,
  UserName: string,
  actions: readonly string[],
): Promise<UserKey> {
  await iam(moto, { Action: "CreateUser", UserName })
  await allow(moto, UserName, actions)
  const key = await iam(moto, { Action: "CreateAccessKey", UserName })
  const textIn = (tag: string) => new RegExp(`<${tag}>([^<]+)<`).exec(key)?.[1] ?? ""
  return { access_key_id: textIn("AccessKeyId"), secret_access_key: textIn("SecretAccessKey") }
}

/** Deletes a key, which AWS then does not know any more. */
export async function deleteKey(moto: Pick<Moto, "url">, UserName: string, key: UserKey): Promise<void> {
  await iam(moto, { Action: "DeleteAccessKey", UserName, AccessKeyId: key.access_key_id })
}
