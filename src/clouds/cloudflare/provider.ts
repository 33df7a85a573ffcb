import type { OpenProvider } from "../registry.ts"
import { cloudflareAccounts } from "./account.ts"
import { r2Buckets } from "./bucket-credentials.ts"

export const open: OpenProvider = () => ({ account: cloudflareAccounts(), buckets: r2Buckets() })
