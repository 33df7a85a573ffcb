import Type, { type Static, type TSchema } from "typebox"
import { defined } from "./defined.ts"
import { DiskSize, diskSizes, type MaximumSize, type VmDisk } from "./disk.ts"
import type { FieldError } from "./field-error.ts"
import { LIMITS } from "./limits.ts"
import type { Offer } from "./offer.ts"
import { gibOf } from "./quantity.ts"
import { CONNECTION_FIELDS } from "./rest-names.ts"
import { ALLOWED, type CelRule, MapOf, Text } from "./schema.ts"
import { errorsOf } from "./validate.ts"

/** Settings of a connection for its VMs: network, address and disk. Their words are the same for each cloud. */

/** Form of a cloud's names. The patterns allow nothing that another part of a URL could have. */
interface Form {
  pattern: string
  allowed: string
}

interface Forms {
  network: Form
  subnet: Form
  /** Types of boot disks, the default first. */
  disks: readonly [string, ...string[]]
  /** Size of the largest disk from which a VM boots. */
  largest: MaximumSize
}

/** https://cloud.google.com/compute/docs/naming-resources */
const GOOGLE_NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"

/** https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules */
const GROUP = "[A-Za-z0-9_()-]([A-Za-z0-9_().-]{0,88}[A-Za-z0-9_()-])?"
const AZURE_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?"
const VNET_ID = `/subscriptions/[0-9A-Fa-f-]{36}/resource[Gg]roups/${GROUP}/providers/Microsoft[.]Network/virtualNetworks/${AZURE_NAME}`

/**
 * Forms of each cloud. A disk type works without further parameters, and a VM boots from it
 * (https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html,
 * https://cloud.google.com/compute/docs/disks/persistent-disks,
 * https://learn.microsoft.com/azure/virtual-machines/disks-types).
 */
const FORMS = {
  aws: {
    network: { pattern: "vpc-[0-9a-f]{8,17}", allowed: "the id of a VPC, such as vpc-0a1b2c3d" },
    subnet: { pattern: "subnet-[0-9a-f]{8,17}", allowed: "ids of subnets, such as subnet-0a1b2c3d" },
    disks: ["gp3", "gp2"],
    largest: "16Ti",
  },
  gcp: {
    network: { pattern: GOOGLE_NAME, allowed: "the name of a VPC network in the connection's project, such as jobs" },
    subnet: { pattern: GOOGLE_NAME, allowed: "names of subnets in the connection's project, such as jobs-eu" },
    disks: ["pd-balanced", "pd-ssd"],
    largest: "64Ti",
  },
  azure: {
    network: {
      pattern: `(${GROUP}/${AZURE_NAME}|${VNET_ID})`,
      allowed: "a virtual network: RESOURCE-GROUP/NETWORK, or its resource id",
    },
    subnet: {
      pattern: `(${AZURE_NAME}|${GROUP}/${AZURE_NAME}/${AZURE_NAME}|${VNET_ID}/subnets/${AZURE_NAME})`,
      allowed: "names of subnets in network, or RESOURCE-GROUP/NETWORK/SUBNET, or resource ids of subnets",
    },
    disks: ["StandardSSD_LRS", "Premium_LRS", "Standard_LRS"],
    largest: "4095Gi",
  },
} as const satisfies Record<string, Forms>

type VmType = keyof typeof FORMS
const VM_TYPES = Object.keys(FORMS) as VmType[]

/** Fields of a connection that are settings of its VMs. */
export const VM_SETTING_FIELDS = ["network", "subnets", "publicAddress", "disk"] as const

const REGION_KEYS = {
  minLength: 2,
  maxLength: LIMITS.region,
  pattern: "^[a-z][a-z0-9-]*[a-z0-9]$",
  allowed: "names of regions as the cloud writes them, such as eu-central-1",
}

const WORDS = {
  network: "Existing network of the VMs: VPC, VPC network or virtual network. Default: depends on the cloud.",
  subnets: "Existing subnets of the VMs, by region. With this field, VMs start only in these regions. Default: any.",
  publicAddress: "False: VMs get no public IP address, and need another way out, such as a NAT gateway. Default: true.",
  disk: "Disk of each VM.",
  size: "Minimum size of the disk. Default: depends on the cloud. A job can require more.",
  type: "The cloud's name of the disk type. Default: depends on the cloud.",
}

/** Returns the schemas of the settings. @param forms absent: those of any cloud, without patterns */
function settingsOf(forms?: Forms) {
  const form = (part?: Form) => part && { pattern: `^${part.pattern}$`, [ALLOWED]: part.allowed }
  return {
    network: Type.Optional(
      Type.String({ minLength: 1, maxLength: 300, description: WORDS.network, ...form(forms?.network) }),
    ),
    subnets: Type.Optional(
      MapOf(
        Type.Array(Type.String({ minLength: 1, maxLength: 400, ...form(forms?.subnet) }), {
          minItems: 1,
          maxItems: LIMITS.subnets,
        }),
        { keys: REGION_KEYS, maxProperties: LIMITS.subnetRegions, description: WORDS.subnets },
      ),
    ),
    publicAddress: Type.Optional(Type.Boolean({ description: WORDS.publicAddress })),
    disk: Type.Optional(
      Type.Object(
        {
          size: Type.Optional(DiskSize(WORDS.size, forms?.largest)),
          type: Type.Optional(
            Type.String({
              minLength: 1,
              maxLength: 64,
              description: WORDS.type,
              ...(forms && { enum: [...forms.disks] }),
            }),
          ),
        },
        { description: WORDS.disk },
      ),
    ),
  }
}

/** Settings in a Connection of any type. */
export const vmSettingFields = settingsOf()
const AnySettings = Type.Object(vmSettingFields)
export type VmSettings = Static<typeof AnySettings>

/** Returns the settings among the fields of a connection. */
export function vmSettingsOf({ network, subnets, publicAddress, disk }: VmSettings): VmSettings {
  return {
    ...defined({ network, subnets, publicAddress, disk }),
  }
}

/** Settings of each type of connection that runs VMs. */
const SETTINGS = {
  aws: Type.Object(settingsOf(FORMS.aws)),
  gcp: Type.Object(settingsOf(FORMS.gcp)),
  azure: Type.Object(settingsOf(FORMS.azure)),
} as const satisfies Record<VmType, TSchema>

function isVmType(type: string): type is VmType {
  return Object.hasOwn(FORMS, type)
}

/** Returns the schemas of the settings that a type of connection has; none if it runs no VMs. */
export function vmSettingFieldsOf(type: string): Record<string, TSchema> {
  return isVmType(type) ? SETTINGS[type].properties : {}
}

/** Keywords of an object that has this field, and not null. */
const given = (field: string) => ({ required: [field], properties: { [field]: { not: { type: "null" } } } })

/** Rule on several settings: as a CEL expression, as JSON Schema for the REST API's document, and as a function. */
interface Rule {
  types: readonly VmType[]
  field: (typeof VM_SETTING_FIELDS)[number]
  /** Conditions of which one must be met, for settings of these types. */
  cel: string
  anyOf: readonly object[]
  isMet: (settings: VmSettings) => boolean
  message: string
}

const REGIONAL = "A network of this cloud is in one region"

const RULES: readonly Rule[] = [
  {
    types: ["aws", "azure"],
    field: "network",
    cel: "!has(self.network) || has(self.subnets)",
    anyOf: [{ not: given("network") }, given("subnets")],
    isMet: ({ network, subnets }) => network === undefined || subnets !== undefined,
    message: `network requires subnets. ${REGIONAL}: name its region and its subnets`,
  },
  {
    types: ["gcp"],
    field: "subnets",
    cel: "!has(self.subnets) || has(self.network)",
    anyOf: [{ not: given("subnets") }, given("network")],
    isMet: ({ network, subnets }) => subnets === undefined || network !== undefined,
    message: "subnets requires network: name the network that has the subnets",
  },
  {
    types: ["azure"],
    field: "subnets",
    cel: "!has(self.subnets) || has(self.network) || self.subnets.all(region, self.subnets[region].all(subnet, subnet.contains('/')))",
    anyOf: [given("network"), { properties: { subnets: { additionalProperties: { items: { pattern: "/" } } } } }],
    isMet: ({ network, subnets = {} }) =>
      network !== undefined || Object.values(subnets).every((names) => names.every((name) => name.includes("/"))),
    message: "a subnet's name requires network. Without it, write RESOURCE-GROUP/NETWORK/SUBNET",
  },
  {
    types: ["azure"],
    field: "publicAddress",
    cel: "!has(self.publicAddress) || self.publicAddress || has(self.subnets)",
    anyOf: [{ properties: { [CONNECTION_FIELDS.publicAddress]: { enum: [true, null] } } }, given("subnets")],
    isMet: ({ publicAddress, subnets }) => publicAddress !== false || subnets !== undefined,
    message: "publicAddress: false requires subnets, because Berth's own network on Azure has no NAT gateway",
  },
]

/** Returns the rules of a type of connection as JSON Schema, for the REST API's document. */
export function vmSettingKeywords(type: string): { allOf?: object[] } {
  const rules = RULES.filter(({ types }) => types.some((each) => each === type))
  return rules.length === 0 ? {} : { allOf: rules.map(({ anyOf }) => ({ anyOf })) }
}

/** Rules of the API server on the form of values, which differs by type. The schema of a type has them for REST. */
const FORM_RULES = VM_TYPES.flatMap((type): Pick<Rule, "types" | "field" | "cel" | "message">[] => {
  const { network, subnet, disks, largest }: Forms = FORMS[type]
  const { pattern, allowed } = diskSizes(largest)
  return [
    {
      types: [type],
      field: "network",
      cel: `!has(self.network) || self.network.matches('^${network.pattern}$')`,
      message: `network must be ${network.allowed}`,
    },
    {
      types: [type],
      field: "subnets",
      cel: `!has(self.subnets) || self.subnets.all(region, self.subnets[region].all(subnet, subnet.matches('^${subnet.pattern}$')))`,
      message: `subnets must be ${subnet.allowed}`,
    },
    {
      types: [type],
      field: "disk",
      cel: `!has(self.disk) || !has(self.disk.type) || self.disk.type in ${JSON.stringify(disks).replaceAll('"', "'")}`,
      message: `disk.type must be one of ${disks.join(", ")}`,
    },
    {
      types: [type],
      field: "disk",
      cel: `!has(self.disk) || !has(self.disk.size) || self.disk.size.matches('${pattern}')`,
      message: `disk.size must be ${allowed}`,
    },
  ]
})

/** Rules of the API server on a Connection's settings. */
export const vmSettingRules: readonly CelRule[] = [
  {
    rule: `self.type in ${JSON.stringify(VM_TYPES).replaceAll('"', "'")} || !(${VM_SETTING_FIELDS.map((field) => `has(self.${field})`).join(" || ")})`,
    message: `${VM_SETTING_FIELDS.join(", ")} are settings of VMs, for connections of type ${VM_TYPES.join(", ")}`,
  },
  ...[...FORM_RULES, ...RULES].map(({ types, field, cel, message }) => ({
    rule: `!(self.type in ${JSON.stringify(types).replaceAll('"', "'")}) || ${cel}`,
    message,
    fieldPath: `.${field}`,
  })),
]

/** Returns every error of the settings of a connection. The API server finds the same ones by CEL. */
export function vmSettingErrors(type: string, settings: Readonly<Record<string, unknown>>): FieldError[] {
  if (!isVmType(type)) {
    return Object.keys(settings).map((field) => ({
      pointer: `/${field}`,
      detail: `${field} is a setting of VMs: only connections of type ${VM_TYPES.join(", ")} have it`,
    }))
  }
  const errors = errorsOf(SETTINGS[type], settings)
  if (errors.length > 0) return errors
  const broken = RULES.filter(({ types, isMet }) => types.includes(type) && !isMet(settings))
  return broken.map(({ field, message }) => ({ pointer: `/${field}`, detail: message }))
}

/** Network of a VM, as its Launch records it. */
export const VmNetworkSchema = Type.Object(
  {
    network: Type.Optional(Text(300, "Network of the connection.")),
    subnets: Type.Optional(
      Type.Array(Text(400, "Subnet."), {
        maxItems: LIMITS.subnets,
        description: "Subnets of the connection in the VM's region.",
      }),
    ),
    publicAddress: Type.Boolean({ description: "True if the VM gets a public IP address." }),
  },
  { description: "Network settings of the connection when this Launch was created. Absent: the installation's." },
)
export type VmNetwork = Static<typeof VmNetworkSchema>

/** Settings of one VM. A Launch keeps them, so a changed connection never changes a VM or its request. */
export interface FrozenSettings {
  network?: VmNetwork
  disk?: VmDisk
}

/**
 * Returns the settings of a VM on this offer: those of its connection, and the disk that its job requires. Pure.
 * @param required disk that the job requires
 * @returns undefined if the connection starts no VMs in the offer's region
 */
export function frozenSettings(
  { network, subnets, publicAddress, disk = {} }: VmSettings,
  { region }: Pick<Offer, "region">,
  required?: VmDisk,
): FrozenSettings | undefined {
  const own = subnets?.[region]
  if (subnets !== undefined && own === undefined) return undefined
  const isNetworkSet = network !== undefined || own !== undefined || publicAddress !== undefined
  const vmDisk: VmDisk = {
    ...required,
    ...(disk.size !== undefined && { sizeGib: gibOf(disk.size) }),
    ...defined({ type: disk.type }),
  }
  return {
    ...(isNetworkSet && {
      network: {
        ...defined({ network, subnets: own }),
        publicAddress: publicAddress ?? true,
      },
    }),
    ...(Object.keys(vmDisk).length > 0 && { disk: vmDisk }),
  }
}
