import Type from "typebox"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { SENSITIVE } from "../../core/apis/schema.ts"
import { Identifier } from "../credential-fields.ts"
import { given, type ProviderDefinition } from "../definition.ts"
import { bootDisk } from "./boot-disk.ts"
import { DISK_PRICES } from "./disk-prices.ts"
import { keyFileErrors } from "./key-file.ts"
import { GCP } from "./machines.ts"
import { GCP_REJECTIONS } from "./rejections.ts"

/** Resource name of a provider (https://cloud.google.com/iam/docs/workload-identity-federation). */
const IDENTITY_PROVIDER =
  "^projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}/providers/[a-z0-9-]{4,32}$"

const SERVICE_ACCOUNT = "^[a-z0-9][-a-z0-9]*@[a-z0-9][-a-z0-9.:]*\\.iam\\.gserviceaccount\\.com$"

const PROJECT = {
  gcp_project_id: Identifier(
    "^[a-z0-9][-a-z0-9.:]*$",
    "Id of the Google Cloud project.",
    "the id of a project: a-z, 0-9 and -, with an optional domain and a colon before it",
  ),
}

const BY_KEY_FILE = Type.Object({
  ...PROJECT,
  keyfile_json: Type.String({
    minLength: 1,
    maxLength: LIMITS.keyfile,
    contentMediaType: "application/json",
    description: "Content of the service account's JSON key file, as a string.",
    [SENSITIVE]: true,
  }),
})
const BY_TOKEN = Type.Object({
  ...PROJECT,
  workload_identity_provider: Identifier(
    IDENTITY_PROVIDER,
    "Workload identity provider that trusts Berth's issuer.",
    "projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>",
  ),
  service_account: Identifier(
    SERVICE_ACCOUNT,
    "Email of the service account that Berth impersonates.",
    "<name>@<project>.iam.gserviceaccount.com",
  ),
})

/** https://cloud.google.com/compute/docs/naming-resources */
const NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"

export const gcp = {
  label: "Google Cloud",
  credentials: {
    forms: [BY_KEY_FILE, BY_TOKEN],
    fields: {
      gcp_project_id: { label: "Project id", flag: "--gcp-project <id>", help: "project at Google Cloud" },
      keyfile_json: { label: "Key file", format: "JSON" },
      service_account: {
        label: "Service account, instead of a key file",
        flag: "--service-account <email>",
        help: "service account for sign-in without a key file",
      },
      workload_identity_provider: {
        label: "Its workload identity provider",
        flag: "--workload-identity-provider <name>",
        help: "provider for sign-in without a key file",
      },
    },
    formFor: (has) => (has("workload_identity_provider") || has("service_account") ? BY_TOKEN : BY_KEY_FILE),
    errorsIn: ({ keyfile_json }) => keyFileErrors(keyfile_json),
    federation: {
      isUsed: (fields) => Object.hasOwn(fields, "workload_identity_provider"),
      needsToken: (fields) => Object.hasOwn(fields, "workload_identity_provider"),
      // The provider's default: https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers
      audience: (fields) => `https://iam.googleapis.com/${fields["workload_identity_provider"]}`,
      insteadOf: "keyfile_json",
    },
  },
  images: { platform: "artifact-registry" },
  buckets: {
    platform: "gcs",
    egress: {
      default: { sameMacroRegion: 0.02, otherMacroRegion: 0.05, internet: 0.12 },
      asia: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
      oceania: { sameMacroRegion: 0.08, otherMacroRegion: 0.1, internet: 0.19 },
      sa: { sameMacroRegion: 0.14, otherMacroRegion: 0.14, internet: 0.12 },
      me: { sameMacroRegion: 0.08, otherMacroRegion: 0.11, internet: 0.12 },
      af: { sameMacroRegion: 0.11, otherMacroRegion: 0.11, internet: 0.12 },
    },
  },
  vms: {
    billingName: "Google Cloud",
    settings: {
      network: { pattern: NAME, allowed: "the name of a VPC network in the connection's project, such as jobs" },
      subnet: { pattern: NAME, allowed: "names of subnets in the connection's project, such as jobs-eu" },
      // https://cloud.google.com/compute/docs/disks/persistent-disks
      disks: ["pd-balanced", "pd-ssd"],
      largest: "64Ti",
      rules: [
        {
          field: "subnets",
          cel: "!has(self.subnets) || has(self.network)",
          anyOf: [{ not: given("subnets") }, given("network")],
          isMet: ({ network, subnets }) => subnets === undefined || network !== undefined,
          message: "subnets requires network: name the network that has the subnets",
        },
      ],
    },
    machines: GCP,
    bootDisk,
    diskPrices: DISK_PRICES,
    // Half for Spot VMs: https://cloud.google.com/vpc/network-pricing#ipaddress
    addressUsd: { onDemand: 0.005, spot: 0.0025 },
    systems: { cpu: "cos", gpu: "ubuntu" },
    serviceAddresses: [],
    spot: {
      // https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption
      notice: {
        by: "metadata",
        // Of 30 s, 5 may pass before the agent sees the notice, and 10 are for uploads.
        containerSeconds: 15,
        path: "/computeMetadata/v1/instance/preempted",
        headers: { "metadata-flavor": "Google" },
        isIn: (text) => text === "TRUE",
      },
      // https://cloud.google.com/compute/docs/instances/spot
      largestDiscount: 0.91,
    },
    rejections: GCP_REJECTIONS,
    // A request id creates no second VM.
    createsLate: false,
  },
} as const satisfies ProviderDefinition
