import { describeCause, Unreachable } from "../client/errors.ts"

/** Document `/.well-known/berth`: how to sign in to an installation. */
export interface Installation {
  version: string
  issuer: string | null
  client_id: string | null
  audience: string | null
  default_project: string | null
}

/** Facts of a response to a request without a credential. */
export interface Greeting {
  installation: Installation | undefined
  /** Time at the server. */
  date: Date | undefined
}

/** Returns the document of an installation; undefined if it has none. @throws Unreachable */
export async function installationAt(url: string, signal: AbortSignal): Promise<Installation | undefined> {
  return (await readGreeting(url, signal)).installation
}

/** Asks an installation for its document. @throws Unreachable */
export async function readGreeting(url: string, signal: AbortSignal): Promise<Greeting> {
  try {
    const response = await fetch(`${url}/.well-known/berth`, { signal, redirect: "error" })
    const header = response.headers.get("date")
    const date = header === null ? undefined : new Date(header)
    const isDocument = response.ok && response.headers.get("content-type")?.startsWith("application/json") === true
    const installation = isDocument ? ((await response.json()) as Installation) : undefined
    return { installation, date }
  } catch (error) {
    signal.throwIfAborted()
    throw new Unreachable(`${url} can't be reached: ${describeCause(error)}`, { cause: error })
  }
}
