import express, { type RequestHandler } from "express"
import { timestamp } from "../../core/apis/clock.ts"
import { isConflict } from "../../core/kube/errors.ts"
import { check } from "../../core/protocol/messages.ts"
import { BOOT_FAILURE_BYTES, type BootFailureRequest, BootFailureRequestSchema } from "../../core/protocol/protocol.ts"
import { badRequest } from "../http/problem.ts"
import type { GatewayOptions } from "./gateway.ts"
import { changesTooFast, refusal, WRITE_TRIES } from "./refusal.ts"
import { isCurrent } from "./report.ts"

type Options = Pick<GatewayOptions, "launches" | "clock" | "logger">

/**
 * Returns the handlers of a boot failure: a VM reports that it can run no container. Its sender needs the bootstrap
 * token, which is checked before. Once an agent has registered, only the agent's key can report for the VM.
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

/** Writes the failure to the Launch. The first report counts; later ones change nothing. */
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
  throw changesTooFast()
}
