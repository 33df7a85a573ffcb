import { readFile } from "node:fs/promises"
import { setTimeout as delay } from "node:timers/promises"
import { Agent, request } from "undici"
import type { Pki } from "./pki.ts"

const POLL_MS = 50
const REQUEST_TIMEOUT_MS = 5_000

/** Queries one API server, as its administrator. */
export interface Probe {
  /** Resolves when the server serves (/readyz). Rejects at the deadline (milliseconds of `performance.now()`). */
  ready(deadline: number): Promise<void>
  /**
   * Resolves when the objects that every client needs exist: the namespace `default`, its ServiceAccount, and the
   * aggregated roles with their rules. Rejects at the deadline.
   */
  furnished(deadline: number): Promise<void>
  /** Closes its connections, and ends its waiting with an AbortError. */
  close(): Promise<void>
}

export async function probe(url: string, pki: Pki): Promise<Probe> {
  const dispatcher = new Agent({
    connect: {
      ca: await readFile(pki.clusterAuthority),
      cert: await readFile(pki.certificate("admin")),
      key: await readFile(pki.key("admin")),
    },
    headersTimeout: REQUEST_TIMEOUT_MS,
    bodyTimeout: REQUEST_TIMEOUT_MS,
  })
  const closing = new AbortController()
  /** Requests `path` until the answer is 200 with an acceptable body. */
  const until = async (path: string, deadline: number, accept: (body: string) => boolean = () => true) => {
    for (;;) {
      const failure = await askOnce(`${url}${path}`, dispatcher, accept)
      if (failure === undefined) return
      if (performance.now() > deadline) throw new Error(`the API server did not become ready: ${path}: ${failure}`)
      await delay(POLL_MS, undefined, { signal: closing.signal })
    }
  }
  return {
    ready: (deadline) => until("/readyz", deadline),
    furnished: async (deadline) => {
      await until("/api/v1/namespaces/default/serviceaccounts/default", deadline)
      for (const role of ["admin", "edit", "view"]) {
        await until(`/apis/rbac.authorization.k8s.io/v1/clusterroles/${role}`, deadline, hasRules)
      }
    },
    close: () => {
      closing.abort()
      return dispatcher.destroy()
    },
  }
}

/** Returns the error in the answer; undefined if there is none. */
async function askOnce(url: string, dispatcher: Agent, accept: (body: string) => boolean): Promise<string | undefined> {
  try {
    const { statusCode, body } = await request(url, { dispatcher })
    const text = await body.text()
    if (statusCode !== 200) return `HTTP ${statusCode}: ${text}`
    return accept(text) ? undefined : `not complete yet: ${text}`
  } catch (error) {
    return String(error)
  }
}

function hasRules(body: string): boolean {
  const { rules } = JSON.parse(body) as { rules: unknown[] | null }
  return rules !== null && rules.length > 0
}
