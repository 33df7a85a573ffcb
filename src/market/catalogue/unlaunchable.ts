import { findExclusion } from "../../clouds/machines/machines.ts"
import type { Machine } from "../router/table.ts"

/** Returns why a machine can't be launched in a region with this provisioning; undefined if it can. */
export function whyUnlaunchable(
  { cloud, instanceType }: Pick<Machine, "cloud" | "instanceType">,
  region: string,
  provisioning: "onDemand" | "spot",
): string | undefined {
  return findExclusion(cloud, instanceType, { region, provisioning })?.reason
}
