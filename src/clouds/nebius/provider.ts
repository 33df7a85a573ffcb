import { defined } from "../../core/apis/defined.ts"
import type { OpenProvider } from "../registry.ts"
import { nebiusAccounts } from "./account.ts"
import { clientsOf } from "./client.ts"
import { openNebius } from "./nebius.ts"
import { nebiusPrices } from "./prices.ts"

export const open: OpenProvider = ({ tokens }) => {
  const clientOf = clientsOf(defined({ tokens }))
  return { account: nebiusAccounts(clientOf), region: openNebius(clientOf), prices: nebiusPrices(clientOf) }
}
