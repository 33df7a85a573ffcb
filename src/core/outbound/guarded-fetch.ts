import { InvalidRequestError } from "./errors.ts"

/** Sends HTTP requests to a provider. Tests replace it. */
export type Fetch = typeof fetch

export interface GuardedFetchOptions {
  /** Returns true for hosts that may be called. All calls use HTTPS. */
  isOwn: (host: string) => boolean
  /** Aborts every call. */
  signal: AbortSignal
  /** Sends the requests. Default: Node.js' own fetch. */
  send?: Fetch | undefined
}

/**
 * Returns a fetch that calls only the provider's own hosts. It follows no redirect: an attacker who can cause one would
 * choose the host that gets the credentials. Such a redirect could also reach hosts inside the cluster's network.
 */
export function guardedFetch({ isOwn, signal, send = fetch }: GuardedFetchOptions): Fetch {
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    if (url.protocol !== "https:" || !isOwn(url.host)) {
      throw new InvalidRequestError("ForeignHost", `${url.protocol}//${url.host} is not one of the provider's hosts`)
    }
    const given = init?.signal ?? (input instanceof Request ? input.signal : undefined)
    const ended = given == null ? signal : AbortSignal.any([signal, given])
    const response = await send(input, { ...init, redirect: "manual", signal: ended })
    if (response.status < 300 || response.status > 399 || response.status === 304) return response
    await response.body?.cancel()
    throw new InvalidRequestError("Redirected", `${url.host} answered with a redirect, which is not followed`)
  }
}
