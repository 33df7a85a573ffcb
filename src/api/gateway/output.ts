import type { RequestHandler } from "express"
import { readTail, TAIL_LINES } from "../../core/apis/output.ts"
import { isOutputToken } from "../../core/protocol/output.ts"
import { unavailable } from "../http/problem.ts"
import type { GatewayOptions } from "./gateway.ts"
import { refusal } from "./refusal.ts"

/** Answers operators with the installation's key with the tail of a job's log, for webhooks that want it. */
export function outputHandler(
  { bootstrapKey, logs }: Pick<GatewayOptions, "bootstrapKey" | "logs">,
  tokenOf: (req: Parameters<RequestHandler>[0]) => string | undefined,
): RequestHandler {
  return async (req, res) => {
    const { namespace, uid } = req.query
    const isAsked = typeof namespace === "string" && typeof uid === "string"
    if (!isAsked || !isOutputToken(bootstrapKey, { namespace, uid }, tokenOf(req)))
      throw refusal("agent-not-authentic", "The token does not come from an operator of this installation.")
    try {
      const output = await readTail(logs.read({ namespace, uid }, { tail: TAIL_LINES }))
      res.set("Cache-Control", "no-store").json({ output })
    } catch (error) {
      throw unavailable("The log store is unavailable. Ask again.", 10, error)
    }
  }
}
