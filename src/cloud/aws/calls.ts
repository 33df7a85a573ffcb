import { EC2Client } from "@aws-sdk/client-ec2"
import type { CredentialFields } from "../../apis/credentials.ts"
import { cloudErrorOf, isThrottled } from "./errors.ts"
import type { Pacer } from "./pacing.ts"
import { sdkConfig } from "./sdk.ts"

/** What each call of the SDK gets: it ends by this signal. */
export interface CallOptions {
  abortSignal: AbortSignal
}

export interface Ec2CallsOptions {
  credentials: CredentialFields
  region: string
  /** How long AWS has for one answer. */
  answerSeconds: number
  pacer: Pacer
}

/**
 * How EC2 is called: one request for each call (whoever asked repeats it, by what the error means), at the pace that
 * the account is allowed, with errors of `errors.ts` only.
 */
export class Ec2Calls {
  readonly region: string
  readonly #client: EC2Client
  readonly #pacer: Pacer
  readonly #answerMs: number

  constructor({ credentials, region, answerSeconds, pacer }: Ec2CallsOptions) {
    this.region = region
    this.#answerMs = answerSeconds * 1000
    this.#pacer = pacer
    this.#client = new EC2Client(sdkConfig(credentials, region, 1))
  }

  /** A call that reads. */
  send<T>(action: string, call: (client: EC2Client, options: CallOptions) => Promise<T>): Promise<T> {
    return this.#paced({ action, changes: false }, () => undefined, call)
  }

  /** A call that changes something, unless the fence throws. */
  change<T>(
    action: string,
    fence: () => void,
    call: (client: EC2Client, options: CallOptions) => Promise<T>,
  ): Promise<T> {
    return this.#paced({ action, changes: true }, fence, call)
  }

  async #paced<T>(
    { action, changes }: { action: string; changes: boolean },
    fence: () => void,
    call: (client: EC2Client, options: CallOptions) => Promise<T>,
  ): Promise<T> {
    const bucket = this.#pacer.of(action)
    await bucket.take()
    fence()
    try {
      return await call(this.#client, { abortSignal: AbortSignal.timeout(this.#answerMs) })
    } catch (cause) {
      const error = cloudErrorOf(cause, { action, region: this.region, changes })
      if (isThrottled(error)) bucket.empty()
      throw error
    }
  }
}
