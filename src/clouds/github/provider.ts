import type { OpenProvider } from "../registry.ts"
import { githubAccounts, githubRegistry } from "./account.ts"

export const open: OpenProvider = () => ({ account: githubAccounts(), registries: githubRegistry })
