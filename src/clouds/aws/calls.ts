import type { EC2 } from "@aws-sdk/client-ec2"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { isThrottled, toCloudError } from "./errors.ts"
import type { Pacer } from "./pacing.ts"
import { ec2Client, type SdkConfig, sdkConfig } from "./sdk.ts"
import type { AssumedRoles } from "./temporary-keys.ts"

/** Options of each SDK call. The signal aborts it. */
export interface CallOptions {
  abortSignal: AbortSignal
}

export interface Ec2CallsOptions {
  credentials: CredentialFields
  region: string
  /** Timeout for one answer. */
  answerSeconds: number
  pacer: Pacer
  roles: AssumedRoles
}

/**
 * Calls EC2 at the rate that the account is allowed, and throws only errors of `errors.ts`. Each call sends one
 * request; the caller decides by the error whether to retry.
 */
export class Ec2Calls {
  readonly region: string
  readonly #config: SdkConfig
  #ec2: Promise<EC2> | undefined
  readonly #pacer: Pacer
  readonly #answerMs: number

  constructor({ credentials, region, answerSeconds, pacer, roles }: Ec2CallsOptions) {
    this.region = region
    this.#answerMs = answerSeconds * 1000
    this.#pacer = pacer
    this.#config = sdkConfig(credentials, { region, roles, maxAttempts: 1 })
  }

  /** Makes a call that reads. */
  send<T>(action: string, call: (ec2: EC2, options: CallOptions) => Promise<T>): Promise<T> {
    return this.#paced({ action, changes: false }, () => undefined, call)
  }

  /** Makes a call that changes something, unless the fence throws. */
  change<T>(action: string, fence: () => void, call: (ec2: EC2, options: CallOptions) => Promise<T>): Promise<T> {
    return this.#paced({ action, changes: true }, fence, call)
  }

  async #paced<T>(
    { action, changes }: { action: string; changes: boolean },
    fence: () => void,
    call: (ec2: EC2, options: CallOptions) => Promise<T>,
  ): Promise<T> {
    const bucket = this.#pacer.of(action)
    this.#ec2 ??= ec2Client(this.#config)
    const [ec2] = await Promise.all([this.#ec2, bucket.take()])
    try {
      // A role's key may need a call of its own, which must not come between the fence and the request.
      await ec2.config.credentials()
    } catch (cause) {
      throw toCloudError(cause, { action, region: this.region, changes: false })
    }
    fence()
    try {
      return await call(ec2, { abortSignal: AbortSignal.timeout(this.#answerMs) })
    } catch (cause) {
      const error = toCloudError(cause, { action, region: this.region, changes })
      if (isThrottled(error)) bucket.empty()
      throw error
    }
  }
}
