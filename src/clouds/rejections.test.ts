import { describe, expect, test } from "vitest"
import type { Common, RefusalClass } from "./rejection.ts"
import { interpretRejection } from "./rejections.ts"

type Case = [cloud: string, kind: RefusalClass, code: string, message: string, scope: readonly Common[], remedy: RegExp]

/** Rejections of docs/cooldowns.md that are about something else than their class says. */
const CASES: readonly Case[] = [
  [
    "aws",
    "Account",
    "DefaultVpcDoesNotExist",
    "the account has no default VPC in r",
    ["region"],
    /create a default VPC/,
  ],
  ["aws", "Region", "PendingVerification", "being validated", ["region", "spot"], /^wait: AWS validates/],
  ["aws", "Credentials", "Blocked", "This account is currently blocked", [], /ask AWS to unblock/],
  [
    "aws",
    "Account",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    "no permission to create the service-linked role",
    ["provisioning"],
    /create-service-linked-role/,
  ],
  ["aws", "Region", "UnauthorizedOperation", "", ["region", "spot"], /add the action to the connection's IAM policy/],
  ["aws", "Quota", "VolumeLimitExceeded", "", ["region"], /request a higher quota/],
  ["gcp", "Account", "conditionNotMet", "constraints/compute.vmExternalIpAccess", [], /allow external addresses/],
  ["gcp", "Account", "conditionNotMet", "constraints/compute.requireShieldedVm", ["gpu"], /allow Berth's images/],
  ["gcp", "Account", "conditionNotMet", "constraints/gcp.resourceLocations", ["region"], /change the setting/],
  ["gcp", "Account", "invalid", "The referenced network resource cannot be found", [], /create the project's network/],
  [
    "gcp",
    "Account",
    "invalid",
    "The referenced subnetwork resource cannot be found",
    ["region"],
    /create the project's network/,
  ],
  // The permission names a subnetwork, and is needed everywhere.
  [
    "gcp",
    "Credentials",
    "forbidden",
    "Required 'compute.subnetworks.useExternalIp' permission",
    [],
    /add the permission/,
  ],
  [
    "azure",
    "Account",
    "RequestDisallowedByPolicy",
    "disallowed by policy: no public IPs",
    [],
    /`publicAddress: false`/,
  ],
  ["azure", "Region", "RequestDisallowedByPolicy", "disallowed by policy", ["region", "spot"], /or set `region`/],
  ["azure", "InvalidRequest", "SkuNotAvailable", "", ["region", "family", "provisioning"], /az vm list-skus/],
  ["azure", "Quota", "PublicIPCountLimitReached", "", ["region"], /request a higher quota/],
  // Words of one cloud say nothing about another.
  ["local", "InvalidRequest", "SkuNotAvailable", "no default VPC", ["offer"], /^$/],
]

describe("the meaning of a rejection", () => {
  test.each(CASES)("%s, %s: %s %s", (cloud, kind, code, message, scope, remedy) => {
    const meaning = interpretRejection(cloud, { class: kind, code, message })
    expect(meaning.scope).toEqual(scope)
    expect(meaning.remedy ?? "").toMatch(remedy)
  })

  test("follows from its class if the cloud gave no code", () => {
    const { scope } = interpretRejection("aws", { class: "Quota", message: "Volume" })
    expect(scope).toEqual(["region", "quota", "provisioning", "size"])
  })
})
