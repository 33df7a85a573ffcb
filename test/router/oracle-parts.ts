import { runInstancesInput } from "../../src/clouds/aws/request.ts"
import { buildMachine } from "../../src/clouds/azure/machine.ts"
import type { LaunchSpec } from "../../src/clouds/cloud.ts"
import { vmsOf } from "../../src/clouds/definitions.ts"
import { buildInstance } from "../../src/clouds/gcp/machine.ts"
import { buildInstance as buildNebiusInstance } from "../../src/clouds/nebius/request.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import type { VmSettings } from "../../src/core/apis/vm-settings.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import type { PriceOfParts } from "./oracle.ts"

/**
 * Returns the price of disk and address with the cheapest of a cloud's connections, and with one without settings. The
 * disk is the one in the request that creates the VM.
 */
export function priceOfParts(settings: Readonly<Record<string, readonly VmSettings[]>>): PriceOfParts {
  const known = new Map<string, Ordered[]>()
  return (offer, diskGib) => {
    const all = [{}, ...(settings[offer.cloud] ?? [])]
    const key = `${offer.cloud}/${offer.instanceType}/${diskGib}`
    const disks = known.get(key) ?? all.map((each) => orderedFor(offer, each, diskGib))
    known.set(key, disks)
    const prices = disks.map((disk, index) => {
      const address =
        all[index]?.publicAddress === false ? 0 : (vmsOf(offer.cloud)?.addressUsd[offer.provisioning] ?? 0)
      return monthlyUsd(offer, disk) / 730 + address
    })
    return Math.min(...prices)
  }
}

interface NebiusRequest {
  spec: { bootDisk: { managedDisk: { spec: { type: string; sizeGibibytes: string } } } }
}

interface Ordered {
  type: string
  gib: number
  mibps: number
}

function orderedFor(offer: Offer, { disk }: VmSettings, requiredGib: number): Ordered {
  const sizes: Readonly<Record<string, number>> = { "20Gi": 20, "30Gi": 30, "100Gi": 100, "2Ti": 2048 }
  const spec: LaunchSpec = {
    name: "9a1b-1",
    installation: "i",
    tags: {},
    offer,
    userData: "#cloud-config\n",
    lifetimeSeconds: 3600,
    disk: {
      requiredGib,
      ...(disk?.size !== undefined && { sizeGib: sizes[disk.size] ?? 0 }),
      ...(disk?.type !== undefined && { type: disk.type }),
    },
  }
  if (offer.cloud === "aws") {
    const [mapping] = runInstancesInput({ ...spec, imageId: "ami-1" }, {}).BlockDeviceMappings ?? []
    const { VolumeType: type = "", VolumeSize: gib = 0, Throughput: mibps = 0 } = mapping?.Ebs ?? {}
    return { type, gib, mibps }
  }
  if (offer.cloud === "gcp") {
    const [disk] = buildInstance(spec, `${offer.region}-a`, {}).disks ?? []
    const { diskType, diskSizeGb, provisionedThroughput } = disk?.initializeParams ?? {}
    const type = diskType?.split("/").at(-1) ?? ""
    return { type, gib: Number(diskSizeGb), mibps: Number(provisionedThroughput ?? 0) }
  }
  if (offer.cloud === "nebius") {
    const place = { projectId: "p", subnetId: "s", securityGroupId: "g", imageId: "i" }
    const request = buildNebiusInstance(spec, place) as unknown as NebiusRequest
    const { type, sizeGibibytes } = request.spec.bootDisk.managedDisk.spec
    return { type, gib: Number(sizeGibibytes), mibps: 0 }
  }
  const { osDisk } = buildMachine(spec, { subnetId: "s", securityGroupId: "g" }, {}).storageProfile ?? {}
  return { type: osDisk?.managedDisk?.storageAccountType ?? "", gib: osDisk?.diskSizeGB ?? 0, mibps: 0 }
}

const MACRO_REGIONS = new Map(readPriceList().regions.map(({ cloud, name, groups }) => [`${cloud}/${name}`, groups[0]]))

function monthlyUsd({ cloud, region }: Offer, { type, gib, mibps }: Ordered): number {
  const price = vmsOf(cloud)?.diskPrices[type]
  if (price === undefined) throw new Error(`no price of ${cloud} ${type}`)
  if (price.sizes !== undefined) return price.sizes.filter(([size]) => size >= gib)[0]?.[1] ?? Number.NaN
  const [listed] = price.byPrice.filter(([, regions]) => ` ${regions} `.includes(` ${region} `))[0] ?? []
  const gibUsd = listed ?? price.elsewhere?.[MACRO_REGIONS.get(`${cloud}/${region}`) ?? ""] ?? Number.NaN
  const extra = Math.max(0, mibps - (price.includedMibps ?? mibps))
  return gib * gibUsd + (extra * gibUsd) / 2
}
