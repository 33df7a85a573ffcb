import type { Providers } from "./cloud/clouds.ts"

/** All that Berth can do with each type of connection; operator and façade are given the same. */
export const PROVIDERS: Providers = {}
