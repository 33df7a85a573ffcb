/** Largest body of a registration or report, bytes. It has only keys and a finish message. */
export const MESSAGE_BYTES = 32 * 1024

export const LAUNCH_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/** Returns the token of an Authorization header. */
export function bearerTokenIn(authorization: string | undefined): string | undefined {
  return /^Bearer ([\w.-]+)$/.exec(authorization ?? "")?.[1]
}
