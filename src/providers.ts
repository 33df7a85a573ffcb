import { systemClock } from "./apis/clock.ts"
import { awsAccounts } from "./cloud/aws/account.ts"
import { openAws } from "./cloud/aws/aws.ts"
import type { Providers } from "./cloud/clouds.ts"

/** All that Berth can do with each type of connection; operator and façade are given the same. */
export const PROVIDERS: Providers = {
  aws: { account: awsAccounts(), region: openAws({ clock: systemClock }) },
}
