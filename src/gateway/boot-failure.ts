import express, { type RequestHandler } from "express"
import { check } from "../agent/messages.ts"
import { BOOT_FAILURE_BYTES, type BootFailureRequest, BootFailureRequestSchema } from "../agent/protocol.ts"
import { timestamp } from "../apis/clock.ts"
import { badRequest, unavailable } from "../http/problem.ts"
import { isConflict } from "../kube/errors.ts"
import { type GatewayOptions, refusal } from "./gateway.ts"
import { isCurrent } from "./report.ts"

/** How often a write is tried while others write the same Launch. */
const WRITE_TRIES = 5

type Options = Pick<GatewayOptions, "launches" | "clock" | "logger">

/**
 * Takes what a VM says that can run no agent. Whoever has the bootstrap token may say it, but only until an agent has
 * registered: from then on the key that the Launch is bound to speaks for the VM. The token is checked before.
 */
export function bootFailureHandlers(options: Options): RequestHandler[] {
  const take: RequestHandler = async (req, res) => {
    const name = String(req.params["launch"])
    await record(name, requestIn(req.body), options)
    res.set("Cache-Control", "no-store").json({})
  }
  return [express.json({ limit: BOOT_FAILURE_BYTES, inflate: false }), take]
}

function requestIn(body: unknown): BootFailureRequest {
  try {
    return check(BootFailureRequestSchema, body, "The message")
  } catch (error) {
    throw error instanceof TypeError ? badRequest(error.message) : error
  }
}

/** Writes it into the Launch. Said again, it changes nothing. */
async function record(name: string, { reason, message }: BootFailureRequest, options: Options): Promise<void> {
  const { launches, clock, logger } = options
  for (let tries = 0; tries < WRITE_TRIES; tries++) {
    const launch = await launches.read(name)
    if (launch === undefined) throw refusal("unknown-launch", "There is no such Launch: power off.")
    if (launch.status?.bootFailure !== undefined) return
    if (!isCurrent(launch)) throw refusal("launch-not-current", "The Launch has ended: power off.")
    if (launch.status?.agent !== undefined) {
      throw refusal("launch-key-conflict", "An agent has registered for this Launch: power off.")
    }
    try {
      await launches.patchBootFailure(launch, { reason, message, time: timestamp(clock.now()) })
      logger.warn({ launch: name, reason, message }, "a VM can run no container")
      return
    } catch (error) {
      if (!isConflict(error)) throw error
    }
  }
  throw unavailable("The Launch changes too fast now; try again.")
}
