/**
 * What a cloud's refusal means for whoever asked, so that the controller branches on meaning and never
 * on a provider's error code. Messages never carry credentials.
 */
export abstract class CloudError extends Error {
  /** The cloud's own error code, such as InsufficientInstanceCapacity. */
  readonly code: string

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
    this.name = new.target.name
  }
}

/** The cloud has no such machine to give now: another offer may have. */
export class CapacityError extends CloudError {}

/** The account may not have more: another account or a smaller machine may. */
export class QuotaError extends CloudError {}

/** The credentials are wrong, expired, or not allowed to do this. */
export class CredentialsError extends CloudError {}

/** The credentials are not allowed to do this in this region, which may be otherwise elsewhere. */
export class RegionError extends CredentialsError {}

/** The request can never succeed as it is. */
export class InvalidRequestError extends CloudError {}

/** It surely did not happen, and may work when tried again. */
export class TransientError extends CloudError {}

/** Nobody knows whether it happened (a time-out, a broken connection): only the identical call can tell. */
export class OutcomeUnknownError extends CloudError {}

/**
 * Whatever is done after a cloud has accepted to make a VM: when that fails, the VM may be there all the same.
 * @throws OutcomeUnknownError for each CloudError
 */
export async function afterAcceptance<T>(act: Promise<T>): Promise<T> {
  try {
    return await act
  } catch (error) {
    if (!(error instanceof CloudError) || error instanceof OutcomeUnknownError) throw error
    throw new OutcomeUnknownError(error.code, `a VM was asked for: ${error.message}`, { cause: error })
  }
}
