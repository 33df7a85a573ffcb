import { expect, test } from "vitest"
import { systemClock } from "../../core/apis/clock.ts"
import {
  AccountError,
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  RegionError,
  TransientError,
} from "../../core/outbound/errors.ts"
import { createLogger } from "../../core/telemetry/logger.ts"
import { verify } from "./actions.ts"

test.each([
  [CredentialsError, "refused"],
  [RegionError, "refused"],
  [AccountError, "refused"],
  [InvalidRequestError, "refused"],
  [CapacityError, "unreachable"],
  [TransientError, "unreachable"],
] as const)("an account that fails verification with %o counts as %s", async (Failure, is) => {
  const error = new Failure("OwnCode", "the account is suspended")
  const options = {
    openAccount: () => ({ verify: () => Promise.reject(error) }),
    clock: systemClock,
    logger: createLogger({ level: "silent", name: "test" }),
  }
  const signal = new AbortController().signal
  const outcome = await verify({ type: "aws", fields: {}, regions: [], settings: {}, seconds: 10, signal }, options)
  expect(outcome).toEqual({ is, message: "OwnCode: the account is suspended" })
})
