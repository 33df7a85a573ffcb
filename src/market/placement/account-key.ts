import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { LaunchAccount } from "../router/cooldown.ts"

/** Returns the key of an account. Accounts are the same in all projects, names of connections are not. */
export function accountKey({ cloud, account, connection, namespace }: LaunchAccount & { namespace: string }): string {
  return JSON.stringify(account === undefined ? [cloud, namespace, connection ?? ""] : [cloud, account])
}

/** Returns the key of the account that pays for a Launch. */
export function accountKeyOf({ spec: { offer, account, connection, job } }: StoredLaunch): string {
  const launchAccount = {
    cloud: offer.cloud,
    ...defined({ account, connection }),
  }
  return accountKey({ ...launchAccount, namespace: job.namespace })
}
