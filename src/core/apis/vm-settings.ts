import Type, { type Static, type TObject, type TSchema } from "typebox"
import type { Form, SettingRule, SettingsDefinition } from "../../clouds/definition.ts"
import { DEFINITIONS, VM_CLOUDS, vmsOf } from "../../clouds/definitions.ts"
import { defined } from "./defined.ts"
import { DiskSize, diskSizes, type VmDisk } from "./disk.ts"
import type { FieldError } from "./field-error.ts"
import { LIMITS } from "./field-limits.ts"
import type { Offer } from "./offer.ts"
import { parseGib } from "./quantity.ts"
import { ALLOWED, type CelRule, MapSchema, Text } from "./schema.ts"
import { findErrors } from "./validate.ts"

/** Settings of a connection for its VMs: network, address and disk. The definitions of clouds have their forms. */

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
function settingsOf(forms?: SettingsDefinition) {
  const form = (part?: Form) => part && { pattern: `^${part.pattern}$`, [ALLOWED]: part.allowed }
  return {
    network: Type.Optional(
      Type.String({ minLength: 1, maxLength: 300, description: WORDS.network, ...form(forms?.network) }),
    ),
    subnets: Type.Optional(
      MapSchema(
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
export function toVmSettings({ network, subnets, publicAddress, disk }: VmSettings): VmSettings {
  return {
    ...defined({ network, subnets, publicAddress, disk }),
  }
}

/** Settings of each type of connection that runs VMs. */
const SETTINGS: ReadonlyMap<string, TObject> = new Map(
  VM_CLOUDS.map((type) => [type, Type.Object(settingsOf(DEFINITIONS[type].vms.settings))]),
)

/** Returns the schemas of the settings that a type of connection has; none if it runs no VMs. */
export function settingFieldsFor(type: string): Record<string, TSchema> {
  return SETTINGS.get(type)?.properties ?? {}
}

/** Returns the rules on several settings of a type of connection. */
function rulesOf(type: string): readonly SettingRule[] {
  return vmsOf(type)?.settings.rules ?? []
}

/** Returns the rules of a type of connection as JSON Schema, for the REST API's document. */
export function vmSettingKeywords(type: string): { allOf?: object[] } {
  const rules = rulesOf(type)
  return rules.length === 0 ? {} : { allOf: rules.map(({ anyOf }) => ({ anyOf })) }
}

/** Rule of the API server, and the types of connections that have it. */
interface TypedRule extends Pick<SettingRule, "cel" | "message"> {
  types: readonly string[]
  field: (typeof VM_SETTING_FIELDS)[number]
}

/** Rules of the API server on the form of values, which differs by type. The schema of a type has them for REST. */
const FORM_RULES = VM_CLOUDS.flatMap((type): TypedRule[] => {
  const { network, subnet, disks, largest } = DEFINITIONS[type].vms.settings
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

/** Rules on several settings, each once. */
const RULES = [...new Set(VM_CLOUDS.flatMap(rulesOf))].map(
  (rule): TypedRule => ({ ...rule, types: VM_CLOUDS.filter((type) => rulesOf(type).includes(rule)) }),
)

/** Rules of the API server on a Connection's settings. */
export const vmSettingRules: readonly CelRule[] = [
  {
    rule: `self.type in ${JSON.stringify(VM_CLOUDS).replaceAll('"', "'")} || !(${VM_SETTING_FIELDS.map((field) => `has(self.${field})`).join(" || ")})`,
    message: `${VM_SETTING_FIELDS.join(", ")} are settings of VMs, for connections of type ${VM_CLOUDS.join(", ")}`,
  },
  ...[...FORM_RULES, ...RULES].map(({ types, field, cel, message }) => ({
    rule: `!(self.type in ${JSON.stringify(types).replaceAll('"', "'")}) || ${cel}`,
    message,
    fieldPath: `.${field}`,
  })),
]

/** Returns every error of the settings of a connection. The API server finds the same ones by CEL. */
export function vmSettingErrors(type: string, settings: Readonly<Record<string, unknown>>): FieldError[] {
  const schema = SETTINGS.get(type)
  if (schema === undefined) {
    return Object.keys(settings).map((field) => ({
      pointer: `/${field}`,
      detail: `${field} is a setting of VMs: only connections of type ${VM_CLOUDS.join(", ")} have it`,
    }))
  }
  const errors = findErrors(schema, settings)
  if (errors.length > 0) return errors
  const broken = rulesOf(type).filter(({ isMet }) => !isMet(settings))
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
    ...(disk.size !== undefined && { sizeGib: parseGib(disk.size) }),
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
