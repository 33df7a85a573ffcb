import type { RequestHandler } from "express"
import { isQuestion, ownerAnswer } from "../../core/identity/gateway-owner.ts"
import { OPERATOR_LEASE } from "../../core/identity/installation.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound } from "../../core/kube/errors.ts"
import { leases } from "../../core/kube/lease.ts"
import type { GatewayOptions } from "./gateway.ts"
import { refusal } from "./refusal.ts"

/** Returns the identity of the operator that leads in this cluster; empty if none does. */
export type ReadLeader = () => Promise<string>

/** Reads the operators' lease. It never reads a cache: a new leader asks right after it got the lease. */
export function leaderReader(client: Pick<KubeClient, "get">, namespace: string): ReadLeader {
  return async () => (await ifFound(client.get(leases, { namespace, name: OPERATOR_LEASE })))?.spec.holderIdentity ?? ""
}

/**
 * Names the operator that leads in this gateway's cluster, to operators with the installation's key. An operator that
 * another one is named to runs in a copy of the cluster.
 */
export function ownerHandler(
  { bootstrapKey }: Pick<GatewayOptions, "bootstrapKey">,
  readLeader: ReadLeader,
  tokenOf: (req: Parameters<RequestHandler>[0]) => string | undefined,
): RequestHandler {
  return async (req, res) => {
    const nonce = req.query["nonce"]
    if (typeof nonce !== "string" || !isQuestion(bootstrapKey, { nonce, token: tokenOf(req) }))
      throw refusal("agent-not-authentic", "The token does not come from an operator of this installation.")
    res.set("Cache-Control", "no-store").json(ownerAnswer(bootstrapKey, nonce, await readLeader()))
  }
}
