import { describe, expect, test } from "vitest"
import { toCloudError } from "../../src/clouds/aws/errors.ts"
import { callError as azureError } from "../../src/clouds/azure/errors.ts"
import { callError as gcpError, operationError } from "../../src/clouds/gcp/errors.ts"
import type { JobSpec } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { REFUSALS } from "../../src/core/apis/refusals.ts"
import { AccountError, type CloudError } from "../../src/core/outbound/errors.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise } from "../../src/market/placement/market.ts"
import { place } from "../../src/market/placement/place.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { Catalogue } from "../../src/market/router/catalogue.ts"
import { at, jobOf, launchOf, time } from "../harness/builders.ts"

/** Most launches that a Job may need in an account that rejects all of them. */
const MOST = 40

const offers = new Catalogue(buildOffers(readPriceList()))

/** Answer of an account to a launch: an error, or a VM. */
type Account = (offer: Offer) => CloudError | undefined

const RAW = Symbol.for("google-gax.rawHttpResponsePayload")

function aws(code: string, message: (offer: Offer) => string): Account {
  return (offer) => {
    const said = { name: code, message: message(offer), $fault: "client", $metadata: { httpStatusCode: 400 } }
    return toCloudError(said, { action: "RunInstances", region: offer.region, changes: true })
  }
}

/** An answer of Compute Engine, as its SDK throws it. */
function gcp(status: number, reason: string, message: (offer: Offer) => string): Account {
  return (offer) => {
    const error = new Error(message(offer))
    const body = JSON.stringify({ error: { errors: [{ reason }] } })
    return gcpError(Object.assign(error, { httpStatusCode: status, [RAW]: body }), "change")
  }
}

/** An answer of Azure, as its SDK throws it. */
function azure(statusCode: number, code: string, message: (offer: Offer) => string): Account {
  return (offer) => azureError(Object.assign(new Error(message(offer)), { statusCode, code }), "change")
}

const idOf = ({ region, instanceType }: Offer) => `berth-${region}-${instanceType}-7f3c0b52`

function policy(name: string): Account {
  return azure(403, "RequestDisallowedByPolicy", (offer) => {
    const assignment = `{"name":"${name}","id":"/subscriptions/0b1f/providers/Microsoft.Authorization/policyAssignments/77"}`
    return `Resource '${idOf(offer)}' was disallowed by policy. Policy identifiers: '[{"policyAssignment":${assignment}}]'.`
  })
}

const constraint = (name: string, rest: (offer: Offer) => string) =>
  gcp(
    412,
    "conditionNotMet",
    (offer) => `Constraint constraints/${name} violated for project 123456789. ${rest(offer)}`,
  )

const CPU: Partial<JobSpec> = {}
const GPU: Partial<JobSpec> = { resources: { gpu: { vram: "16Gi" } } }
const T4: Partial<JobSpec> = { resources: { gpu: { model: "T4", count: 1 } } }
const SPOT_FIRST = { provisioning: "spotFirst" as const }

const SPOT_ONLY = { provisioning: "spot" as const }
const sizeRestricted = azure(
  409,
  "SkuNotAvailable",
  (offer) =>
    `The requested size for resource '/subscriptions/0b1f/resourceGroups/berth/providers/Microsoft.Compute/virtualMachines/${idOf(offer)}' is currently ` +
    `not available in location '${offer.region}' zones '' for subscription '0b1f'. Please try another size or deploy to a different location or zones.`,
)
const noSpotRole = aws(
  "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
  () => "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
)
const noDefaultVpc: Account = ({ region }) =>
  new AccountError("DefaultVpcDoesNotExist", `the account has no default VPC in ${region}`)
const denied = aws("UnauthorizedOperation", () => "with an explicit deny in a service control policy")
const unknown = aws(
  "InvalidThing",
  (offer) => `The thing '${idOf(offer)}' in ${offer.region} cannot contain ${offer.instanceType} (x-${offer.cpu})`,
)
const noVcpus = "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket"
const cores = (offer: Offer) =>
  `Operation could not be completed as it results in exceeding approved standard${offer.instanceType.replace(/\W|\d/g, "")}Family Cores quota. ` +
  `Additional details - Deployment Model: Resource Manager, Location: ${offer.region}, Current Limit: 0, Additional Required: ${offer.cpu}.`

/** An account by what it rejects, the number of launches, the job, and what the Job's message must say: the cause and the remedy. */
const ACCOUNTS: readonly [string, number, string, Partial<JobSpec>, Account, RegExp, RegExp][] = [
  [
    "AWS without default VPCs",
    20,
    "aws",
    CPU,
    noDefaultVpc,
    /DefaultVpcDoesNotExist/,
    /create a default VPC .*, name `subnets` in the connection, or set `region`/,
  ],
  [
    "AWS: a role that lacks an action",
    20,
    "aws",
    CPU,
    aws(
      "UnauthorizedOperation",
      (offer) =>
        `You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/berth is not authorized to perform: ` +
        `ec2:RunInstances on resource: arn:aws:ec2:${offer.region}:123456789012:instance/* because no identity-based policy allows the ec2:RunInstances action.`,
    ),
    /ec2:RunInstances/,
    /add the action to the connection's IAM policy/,
  ],
  [
    "AWS: a new account that is still validated",
    20,
    "aws",
    CPU,
    aws(
      "PendingVerification",
      () =>
        "Your request for accessing resources in this region is being validated, and you will not be able to launch additional resources in this region until the validation is complete.",
    ),
    /PendingVerification.*being validated/,
    /wait: AWS validates new accounts/,
  ],
  [
    "AWS: a blocked account",
    1,
    "aws",
    CPU,
    aws("Blocked", () => "This account is currently blocked and not recognized as a valid account."),
    /currently blocked/,
    /ask AWS to unblock the account/,
  ],
  [
    "AWS: a role that can't create the role for spot",
    1,
    "aws",
    SPOT_ONLY,
    noSpotRole,
    /ServiceLinkedRoleCreationNotPermitted/,
    /create-service-linked-role/,
  ],
  [
    "AWS Free plan with a job that the plan has no type for",
    1,
    "aws",
    { resources: { cpu: 4 } },
    aws("InvalidParameterCombination", () => "The specified instance type is not eligible for Free Tier."),
    /not eligible for Free Tier/,
    /upgrade the account/,
  ],
  [
    "AWS Free plan of an older account, which has none of the plan's types that the job may use",
    3,
    "aws",
    CPU,
    aws("InvalidParameterCombination", () => "The specified instance type is not eligible for Free Tier."),
    /not eligible for Free Tier/,
    /upgrade the account/,
  ],
  [
    "AWS without quota for GPUs",
    6,
    "aws",
    GPU,
    aws("VcpuLimitExceeded", () => noVcpus),
    /for a quota/,
    /request a higher quota/,
  ],
  [
    "AWS without quota for GPUs, spot first",
    12,
    "aws",
    { ...GPU, ...SPOT_FIRST },
    (offer) =>
      aws(offer.provisioning === "spot" ? "MaxSpotInstanceCountExceeded" : "VcpuLimitExceeded", () => noVcpus)(offer),
    /for a quota/,
    /request a higher quota/,
  ],
  ["AWS: an unknown cause for each machine", 20, "aws", CPU, unknown, /InvalidThing/, /next attempt/],
  [
    "AWS: other causes in each region",
    20,
    "aws",
    CPU,
    (offer) =>
      (offer.region.startsWith("us-") ? noDefaultVpc : offer.region.startsWith("eu-") ? unknown : denied)(offer),
    /^all [\d,]+ matching offers are in cooldown: aws rejected 20 launches of connection main: /,
    /next attempt/,
  ],
  [
    "GCP: an organization's policy against external addresses",
    1,
    "gcp",
    CPU,
    constraint(
      "compute.vmExternalIpAccess",
      (offer) => `Add instance projects/p/zones/${offer.zone}/instances/${idOf(offer)} to the constraint.`,
    ),
    /constraints\/compute\.vmExternalIpAccess/,
    /have the organization's policy allow external addresses.*, or set `publicAddress: false` in the connection/,
  ],
  [
    "GCP: an organization's policy on images",
    1,
    "gcp",
    GPU,
    constraint("compute.trustedImageProjects", () => "Use of images from project ml-images is prohibited."),
    /trustedImageProjects/,
    /allow Berth's images/,
  ],
  [
    "GCP: a policy of its own on each machine",
    20,
    "gcp",
    CPU,
    gcp(
      412,
      "conditionNotMet",
      (offer) => `Operation denied by custom org policy on resource '${idOf(offer)}': customConstraints/custom.x`,
    ),
    /custom org policy/,
    /next attempt/,
  ],
  [
    "GCP without the network",
    1,
    "gcp",
    CPU,
    gcp(
      400,
      "invalid",
      () =>
        "Invalid value for field 'resource.network': 'projects/p/global/networks/default'. The referenced network resource cannot be found.",
    ),
    /network resource cannot be found/,
    /create the project's network/,
  ],
  [
    "GCP without quota for GPUs",
    1,
    "gcp",
    { ...GPU, ...SPOT_FIRST },
    () =>
      operationError(
        [{ code: "QUOTA_EXCEEDED", message: "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally." }],
        403,
      ),
    /GPUS_ALL_REGIONS/,
    /request a higher quota/,
  ],
  [
    "GCP without quota for a card in any region",
    3,
    "gcp",
    T4,
    (offer) =>
      operationError(
        [
          {
            code: "QUOTA_EXCEEDED",
            message: `Quota 'NVIDIA_T4_GPUS' exceeded.  Limit: 0.0 in region ${offer.region}.`,
          },
        ],
        403,
      ),
    /NVIDIA_T4_GPUS/,
    /request a higher quota/,
  ],
  [
    "Azure: a policy against public addresses",
    1,
    "azure",
    CPU,
    policy("Network interfaces should not have public IPs"),
    /public IPs/,
    /exempt Berth's resource groups.*`publicAddress: false` and `subnets` with a NAT gateway in the connection/,
  ],
  ["Azure: a policy of unknown content", 20, "azure", CPU, policy("ACME baseline 7"), /ACME baseline 7/, /exempt/],
  ["Azure: a policy on sizes", 20, "azure", CPU, policy("Allowed virtual machine size SKUs"), /size SKUs/, /exempt/],
  [
    "Azure: a role that lacks an action",
    1,
    "azure",
    CPU,
    azure(
      403,
      "AuthorizationFailed",
      (offer) =>
        `The client does not have authorization to perform action 'Microsoft.Compute/virtualMachines/write' over scope '${idOf(offer)}'.`,
    ),
    /virtualMachines\/write/,
    /add the action to the service principal's role/,
  ],
  [
    "Azure: a subscription that may use no size",
    35,
    "azure",
    CPU,
    sizeRestricted,
    /SkuNotAvailable.*for subscription/,
    /az vm list-skus/,
  ],
  [
    "Azure: a subscription that may use no size in the region of the job",
    35,
    "azure",
    { region: ["westeurope"] },
    sizeRestricted,
    /SkuNotAvailable.*for subscription/,
    /az vm list-skus/,
  ],
  [
    "Azure: a subscription that may use no size, spot first",
    36,
    "azure",
    SPOT_FIRST,
    sizeRestricted,
    /SkuNotAvailable.*for subscription/,
    /az vm list-skus/,
  ],
  [
    "Azure without quota for GPUs",
    40,
    "azure",
    { ...GPU, ...SPOT_FIRST },
    azure(409, "OperationNotAllowed", cores),
    /Family Cores quota/,
    /request a higher quota/,
  ],
]

const launchAccounts = (cloud: string) => [{ cloud, connection: "main", account: "42" }]

/** Launches a Job until it waits or has a VM. */
function outcome(cloud: string, spec: Partial<JobSpec>, account: Account) {
  const job = jobOf({ spec: { cloud: [cloud as "aws"], ...spec } })
  const launches: StoredLaunch[] = []
  for (let seconds = 0; launches.length <= 2 * MOST; seconds += 2) {
    const facts = {
      namespace: "team",
      offers,
      launchAccounts: launchAccounts(cloud),
      launches: launchHistory(launches),
    }
    const market = appraise(facts, at(seconds), JOB_DEFAULTS)
    const verdict = place(job, market, at(seconds), JOB_DEFAULTS)
    if (verdict.kind !== "placed") return { launches, message: verdict.message, offer: undefined }
    const { offer } = verdict.placement
    const error = account(offer)
    if (error === undefined) return { launches, message: verdict.why, offer }
    launches.push(
      launchOf(job, launches.length + 1, {
        spec: { offer, connection: "main", account: "42" },
        status: refusedBy(error, seconds),
      }),
    )
  }
  return { launches, message: "", offer: undefined }
}

function refusedBy(error: CloudError, seconds: number): NonNullable<StoredLaunch["status"]> {
  const kind = REFUSALS.find((each) => `${each}Error` === error.name)
  if (kind === undefined) throw error
  return { phase: "refused", refusal: { class: kind, code: error.code, message: error.message, time: time(seconds) } }
}

describe("an account that rejects every launch of a job", () => {
  test.each(ACCOUNTS)(
    `gets for %s at most %i launches, and a message with cause and remedy`,
    (_, most, cloud, spec, account, cause, remedy) => {
      const { launches, message } = outcome(cloud, spec, account)
      expect(most).toBeLessThanOrEqual(MOST)
      expect(launches.length, message).toBeLessThanOrEqual(most)
      expect(message).toMatch(/^all [\d,]+ matching offers are in cooldown: /)
      expect(message).toMatch(cause)
      expect(message).toMatch(remedy)
    },
  )
})

describe("an account that allows something", () => {
  test("gets on AWS' Free plan a second launch of a type that the plan has", () => {
    const free = aws("InvalidParameterCombination", () => "The specified instance type is not eligible for Free Tier.")
    const { launches, offer, message } = outcome("aws", CPU, (each) =>
      each.instanceType.endsWith("-flex.large") ? undefined : free(each),
    )
    expect(launches).toHaveLength(1)
    expect(offer?.instanceType).toBe("c7i-flex.large")
    expect(message).toMatch(/\d+ that rank before it are in cooldown.*: aws rejected 1 launch of connection main/)
  })

  test.each<[string, number, string, Account]>([
    ["AWS without the role for spot", 1, "aws", noSpotRole],
    [
      "AWS with a policy against spot",
      20,
      "aws",
      aws("UnauthorizedOperation", () => "You are not authorized to perform this operation: spot-instances-request"),
    ],
    ["Azure with a trial subscription, which may not use spot", 35, "azure", sizeRestricted],
  ])("gets for %s a VM on demand after at most %i launches, if the job prefers spot", (_, most, cloud, account) => {
    const { launches, offer, message } = outcome(cloud, SPOT_FIRST, (each) =>
      each.provisioning === "spot" ? account(each) : undefined,
    )
    expect(offer?.provisioning, message).toBe("onDemand")
    expect(launches.length).toBeLessThanOrEqual(most)
  })

  test("gets on Azure a VM of the one family that a subscription may use, in the region of the job", () => {
    const { launches, offer } = outcome("azure", { region: ["westeurope"] }, (each) =>
      each.instanceType.startsWith("Standard_F") ? undefined : sizeRestricted(each),
    )
    expect(offer?.instanceType).toMatch(/^Standard_F/)
    // Each family is tried once.
    const families = launches.map(({ spec }) => spec.offer.instanceType.replace(/\d+/, ""))
    expect(new Set(families).size).toBe(launches.length)
  })

  test.each(["eu-central-1", "eu-west-1", "us-east-1", "us-west-2"])(
    "gets on AWS a VM in the one region that an organization allows: %s",
    (region) => {
      const { launches, offer } = outcome("aws", CPU, (each) => (each.region === region ? undefined : denied(each)))
      expect([launches.length, offer?.region]).toEqual([expect.any(Number), region])
    },
  )

  test("a machine family that is always rejected costs at most three launches, and its region stays open", () => {
    const bad = aws("InvalidParameterValue", (each) => `The machine ${each.instanceType} cannot be made`)
    const { launches, offer } = outcome("aws", CPU, (each) =>
      each.instanceType.startsWith("m6g.") ? bad(each) : undefined,
    )
    expect(launches.map(({ spec }) => spec.offer.instanceType)).toEqual(
      expect.arrayContaining([expect.stringMatching(/^m6g/)]),
    )
    expect(launches.length).toBeLessThanOrEqual(3)
    expect(offer?.instanceType).not.toMatch(/^m6g/)
  })
})
