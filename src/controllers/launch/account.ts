import type { Launch } from "../../apis/launch.ts"
import type { CloudAccount } from "../../cloud/provider.ts"

/** The account and region that a Launch is pinned to, with what opens it. */
export function accountOf(launch: Pick<Launch, "spec">): CloudAccount {
  const { offer, account, project, connection, sealedCredentials } = launch.spec
  return {
    cloud: offer.cloud,
    region: offer.region,
    ...(account !== undefined && { account }),
    ...(project !== undefined && { project }),
    ...(connection !== undefined && { connection }),
    ...(sealedCredentials !== undefined && { sealedCredentials }),
  }
}

/**
 * Tells accounts apart: one list serves all Launches of the same account and region. Projects that share an account are
 * listed each by its own credentials, so that one project's revoked key blinds nobody else.
 */
export function accountKey({ cloud, region, account, project, sealedCredentials }: CloudAccount): string {
  const unnamed = account === undefined ? (sealedCredentials ?? "") : ""
  return JSON.stringify([cloud, region, account ?? "", project ?? "", unnamed])
}
