import Type from "typebox"
import { CONNECTION_FIELDS } from "../../core/apis/rest-names.ts"
import { Identifier, Secret } from "../credential-fields.ts"
import { given, type ProviderDefinition, REGIONAL_NETWORK } from "../definition.ts"
import { bootDisk } from "./boot-disk.ts"
import { DISK_PRICES } from "./disk-prices.ts"
import { AZURE } from "./machines.ts"
import { AZURE_REJECTIONS } from "./rejections.ts"

const UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
const A_UUID = "a UUID"

const BY_SECRET = Type.Object({
  tenant_id: Identifier(
    "^[A-Za-z0-9][-A-Za-z0-9.]*$",
    "Directory (tenant) id, or a domain of the tenant.",
    "a UUID or a domain name",
  ),
  client_id: Identifier(UUID, "Application (client) id of the service principal.", A_UUID),
  client_secret: Secret("Client secret of the service principal."),
  subscription_id: Identifier(UUID, "Id of the subscription.", A_UUID),
})
const BY_TOKEN = Type.Omit(BY_SECRET, ["client_secret"])

/** https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules */
const GROUP = "[A-Za-z0-9_()-]([A-Za-z0-9_().-]{0,88}[A-Za-z0-9_()-])?"
const NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?"
const VNET_ID = `/subscriptions/[0-9A-Fa-f-]{36}/resource[Gg]roups/${GROUP}/providers/Microsoft[.]Network/virtualNetworks/${NAME}`

export const azure = {
  label: "Azure",
  credentials: {
    forms: [BY_SECRET, BY_TOKEN],
    fields: {
      subscription_id: { label: "Subscription id", flag: "--subscription-id <id>", help: "subscription" },
      tenant_id: { label: "Tenant id", flag: "--tenant-id <id>", help: "tenant" },
      client_id: { label: "Client id", flag: "--client-id <id>", help: "application" },
      client_secret: { label: "Client secret" },
    },
    formFor: (has) => (has("client_secret") ? BY_SECRET : BY_TOKEN),
    federation: {
      isUsed: (fields) => !Object.hasOwn(fields, "client_secret"),
      needsToken: (fields) => !Object.hasOwn(fields, "client_secret"),
      // https://learn.microsoft.com/entra/workload-id/workload-identity-federation
      audience: () => "api://AzureADTokenExchange",
      insteadOf: "client_secret",
    },
  },
  images: { platform: "acr" },
  buckets: {
    platform: "azure-blob",
    egress: {
      default: { sameMacroRegion: 0.02, otherMacroRegion: 0.05, internet: 0.087 },
      asia: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
      oceania: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
      sa: { sameMacroRegion: 0.16, otherMacroRegion: 0.16, internet: 0.181 },
      me: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
      af: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
    },
  },
  vms: {
    billingName: "Microsoft Azure",
    settings: {
      network: {
        pattern: `(${GROUP}/${NAME}|${VNET_ID})`,
        allowed: "a virtual network: RESOURCE-GROUP/NETWORK, or its resource id",
      },
      subnet: {
        pattern: `(${NAME}|${GROUP}/${NAME}/${NAME}|${VNET_ID}/subnets/${NAME})`,
        allowed: "names of subnets in network, or RESOURCE-GROUP/NETWORK/SUBNET, or resource ids of subnets",
      },
      // https://learn.microsoft.com/azure/virtual-machines/disks-types
      disks: ["StandardSSD_LRS", "Premium_LRS", "Standard_LRS"],
      // An OS disk: https://learn.microsoft.com/azure/virtual-machines/managed-disks-overview
      largest: "4095Gi",
      rules: [
        REGIONAL_NETWORK,
        {
          field: "subnets",
          cel: "!has(self.subnets) || has(self.network) || self.subnets.all(region, self.subnets[region].all(subnet, subnet.contains('/')))",
          anyOf: [given("network"), { properties: { subnets: { additionalProperties: { items: { pattern: "/" } } } } }],
          isMet: ({ network, subnets = {} }) =>
            network !== undefined || Object.values(subnets).every((names) => names.every((name) => name.includes("/"))),
          message: "a subnet's name requires network. Without it, write RESOURCE-GROUP/NETWORK/SUBNET",
        },
        {
          field: "publicAddress",
          cel: "!has(self.publicAddress) || self.publicAddress || has(self.subnets)",
          anyOf: [{ properties: { [CONNECTION_FIELDS.publicAddress]: { enum: [true, null] } } }, given("subnets")],
          isMet: ({ publicAddress, subnets }) => publicAddress !== false || subnets !== undefined,
          message: "publicAddress: false requires subnets, because Berth's own network on Azure has no NAT gateway",
        },
      ],
    },
    machines: AZURE,
    bootDisk,
    diskPrices: DISK_PRICES,
    // https://azure.microsoft.com/pricing/details/ip-addresses/
    addressUsd: { onDemand: 0.005, spot: 0.005 },
    systems: { cpu: "ubuntu", gpu: "ubuntu" },
    // The VM's host. It is the VM's name server as well.
    serviceAddresses: ["168.63.129.16"],
    spot: {
      // https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
      notice: {
        by: "metadata",
        // Of 30 s, 5 may pass before the agent sees the notice, and 10 are for uploads.
        containerSeconds: 15,
        path: "/metadata/scheduledevents?api-version=2020-07-01",
        headers: { metadata: "true" },
        isIn: (text = "{}") => {
          const { Events = [] } = JSON.parse(text) as { Events?: { EventType?: string }[] }
          return Events.some(({ EventType }) => EventType === "Preempt")
        },
      },
    },
    rejections: AZURE_REJECTIONS,
    // A request's only precondition is that no VM of the name exists now
    // (https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update, If-None-Match).
    createsLate: true,
  },
} as const satisfies ProviderDefinition
