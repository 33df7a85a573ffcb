import { readFile } from "node:fs/promises"
import { setTimeout as delay } from "node:timers/promises"
import { Agent, request } from "undici"
import type { Pki } from "./pki.ts"

const POLL_MS = 50
const REQUEST_TIMEOUT_MS = 5_000

/** Asks one API server, as its administrator. */
export interface Probe {
  /** Resolves when the server serves (/readyz); rejects at the deadline (milliseconds since the epoch). */
  ready(deadline: number): Promise<void>
  /**
   * Resolves when what every client relies on is there: the namespace `default`, its ServiceAccount, and the
   * aggregated roles with their rules. Rejects at the deadline.
   */
  furnished(deadline: number): Promise<void>
  close(): Promise<void>
}

/** Makes a probe of the API server at `url`. */
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
  /** The body of a 200; undefined for any other answer, or none. */
  const get = async (path: string): Promise<string | undefined> => {
    try {
      const { statusCode, body } = await request(`${url}${path}`, { dispatcher })
      const text = await body.text()
      return statusCode === 200 ? text : undefined
    } catch {
      return undefined
    }
  }
  return {
    ready: (deadline) => poll(async () => (await get("/readyz")) !== undefined, "/readyz to answer ok", deadline),
    furnished: async (deadline) => {
      const account = "/api/v1/namespaces/default/serviceaccounts/default"
      await poll(async () => (await get(account)) !== undefined, "the ServiceAccount default/default", deadline)
      for (const role of ["admin", "edit", "view"]) {
        const path = `/apis/rbac.authorization.k8s.io/v1/clusterroles/${role}`
        await poll(async () => hasRules(await get(path)), `the rules of the ClusterRole ${role}`, deadline)
      }
    },
    close: () => dispatcher.destroy(),
  }
}

function hasRules(body: string | undefined): boolean {
  if (body === undefined) return false
  const { rules } = JSON.parse(body) as { rules: unknown[] | null }
  return rules !== null && rules.length > 0
}

async function poll(check: () => Promise<boolean>, what: string, deadline: number): Promise<void> {
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error(`waited in vain for ${what}`)
    await delay(POLL_MS)
  }
}
