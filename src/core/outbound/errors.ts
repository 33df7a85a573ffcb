/**
 * A cloud's error, classified by its meaning for the caller. So the controller never branches on a provider's error
 * code. Messages never contain credentials.
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

/** The cloud currently has no such machine. Another offer may work. */
export class CapacityError extends CloudError {}

/** One subnet has no capacity. The same launch with a higher `exhaustedSubnets` names the next subnet. */
export class SubnetCapacityError extends CapacityError {}

/** The account has reached a quota. Another account or a smaller machine may work. */
export class QuotaError extends CloudError {}

/** The credentials are wrong, expired, or not allowed to do this. */
export class CredentialsError extends CloudError {}

/** The credentials are not allowed to do this in this region. Other regions may allow it. */
export class RegionError extends CredentialsError {}

/**
 * The account itself does not allow VMs like this, here or in any region: its plan, a policy of its organization, or a
 * missing network. Another account may allow it. Unlike a rejection of credentials, it proves that there is no VM.
 */
export class AccountError extends CloudError {}

/** The request can never succeed as it is. */
export class InvalidRequestError extends CloudError {}

/** @throws InvalidRequestError if an offer is not of the region that a cloud was opened for */
export function checkRegion(offer: { region: string }, opened: string): void {
  if (offer.region === opened) return
  const message = `the offer is of region ${offer.region}, but this cloud was opened for ${opened}`
  throw new InvalidRequestError("WrongRegion", message)
}

/** The account may not use this machine. `machines`: other types and series that it may not use in the region either. */
export class RestrictedError extends InvalidRequestError {
  readonly machines: readonly string[]

  constructor(code: string, message: string, machines: readonly string[]) {
    super(code, message)
    this.machines = machines
  }
}

/** The request had no effect, and may succeed when retried. */
export class TransientError extends CloudError {}

/** The outcome is unknown (a timeout, a broken connection). Only the identical call can find it out. */
export class OutcomeUnknownError extends CloudError {}

/**
 * Marks errors after a cloud has accepted to create a VM: the VM may exist despite the error.
 * @throws OutcomeUnknownError for each CloudError
 */
export async function afterAcceptance<T>(act: Promise<T>): Promise<T> {
  try {
    return await act
  } catch (error) {
    if (!(error instanceof CloudError) || error instanceof OutcomeUnknownError) throw error
    throw new OutcomeUnknownError(error.code, `a VM was requested: ${error.message}`, { cause: error })
  }
}
