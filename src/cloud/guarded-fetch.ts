import { InvalidRequestError } from "./errors.ts"

/** How a provider is called over HTTP; tests put their own in its place. */
export type Fetch = typeof fetch

export interface GuardedFetchOptions {
  /** Whether a host may be called, always over HTTPS. */
  isOwn: (host: string) => boolean
  /** Ends every call. */
  signal: AbortSignal
  /** What sends; default: Node.js' own fetch. */
  send?: Fetch | undefined
}

/**
 * A fetch that calls the provider's own hosts and no other. A redirect is not followed: whoever could make the provider
 * send one would choose the host that gets the credentials, or have us look into the cluster's own network.
 */
export function guardedFetch({ isOwn, signal, send = fetch }: GuardedFetchOptions): Fetch {
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    if (url.protocol !== "https:" || !isOwn(url.host)) {
      throw new InvalidRequestError("ForeignHost", `${url.protocol}//${url.host} is none of the provider's hosts`)
    }
    const given = init?.signal ?? (input instanceof Request ? input.signal : undefined)
    const ended = given == null ? signal : AbortSignal.any([signal, given])
    const response = await send(input, { ...init, redirect: "manual", signal: ended })
    if (response.status < 300 || response.status > 399 || response.status === 304) return response
    await response.body?.cancel()
    throw new InvalidRequestError("Redirected", `${url.host} answered with a redirect, which is not followed`)
  }
}
