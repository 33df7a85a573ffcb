import type { Json } from "../../src/clouds/nebius/api.ts"
import { type NebiusImage, type NebiusProject, regionCodeOf } from "./nebius-creation.ts"
import type { Shown } from "./nebius-network.ts"

/** Quota of a tenant or project in a region, such as `compute.instance.gpu.h100`. */
export interface NebiusQuota {
  name: string
  region: string
  limit?: number
  usage?: number
}

/** Returns a public image as the API shows it. */
export function shownImage({ id, family, region, minDiskGib }: NebiusImage): Shown {
  const parentId = `project-${regionCodeOf(id)}public-images`
  const source = { sourceStorage: { bucketName: "public-images", objectName: id } }
  return {
    metadata: { id, parentId, name: id, labels: { region } },
    spec: { imageFamily: family, cpuArchitecture: "AMD64", ...source },
    status: { state: "READY", minDiskSizeBytes: String(minDiskGib * 2 ** 30) },
  }
}

export function shownProject({ id, region }: NebiusProject, tenant: string): Shown {
  const status = { region, containerState: "ACTIVE", suspensionState: "NONE" }
  return { metadata: { id, parentId: tenant, name: `default-${region}` }, spec: { region }, status }
}

/** Returns the quotas of the tenant or project that a request names. */
export function shownQuotas(quotas: readonly NebiusQuota[], { parentId = "" }: Json): Shown[] {
  return quotas.map(({ name, region, limit, usage = 0 }, index) => ({
    metadata: { id: `quotaallowance-${index}`, parentId: String(parentId), name },
    spec: { region, ...(limit !== undefined && { limit: String(limit) }) },
    status: { state: "STATE_ACTIVE", usage: String(usage), service: "compute", usageState: "USAGE_STATE_USED" },
  }))
}
