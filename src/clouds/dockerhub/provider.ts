import type { OpenProvider } from "../registry.ts"
import { dockerHubAccounts, dockerHubRegistry } from "./account.ts"

export const open: OpenProvider = () => ({ account: dockerHubAccounts(), registries: dockerHubRegistry })
