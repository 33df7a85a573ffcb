import { defined } from "../../core/apis/defined.ts"
import type { OpenProvider } from "../registry.ts"
import { nebiusAccounts } from "./account.ts"
import { openNebius } from "./nebius.ts"
import { nebiusPrices } from "./prices.ts"

export const open: OpenProvider = ({ tokens }) => {
  const signIn = defined({ tokens })
  return { account: nebiusAccounts(signIn), region: openNebius(signIn), prices: nebiusPrices(signIn) }
}
