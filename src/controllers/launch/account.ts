import type { Launch } from "../../apis/launch.ts"
import type { CloudAccount } from "../../cloud/provider.ts"

/** The account and region that a Launch is pinned to, with what opens it. */
export function accountOf(launch: Pick<Launch, "spec">): CloudAccount {
  const { offer, account, sealedCredentials } = launch.spec
  return {
    cloud: offer.cloud,
    region: offer.region,
    ...(account !== undefined && { account }),
    ...(sealedCredentials !== undefined && { sealedCredentials }),
  }
}

/** Tells accounts apart: one list serves all Launches of the same account and region. */
export function accountKey({ cloud, region, account, sealedCredentials }: CloudAccount): string {
  return JSON.stringify([cloud, region, account ?? "", account === undefined ? (sealedCredentials ?? "") : ""])
}
