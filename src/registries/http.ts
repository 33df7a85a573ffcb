import { CloudError } from "../cloud/errors.ts"
import type { Fetch } from "../cloud/guarded-fetch.ts"
import { readError, readErrorOf } from "../cloud/read-errors.ts"

/** An answer in JSON, with the headers that tell of pages and rights. */
export interface Answer {
  body: unknown
  headers: Headers
}

/** Asks a registry's API, and takes only JSON for an answer. @throws CloudError */
export async function ask(fetch: Fetch, url: string, init: RequestInit, signal: AbortSignal): Promise<Answer> {
  return await answered(signal, async () => {
    const response = await fetch(url, init)
    const body = bodyOf(await response.text())
    if (response.ok && body !== undefined) return { body, headers: response.headers }
    throw refusal(response, body, new URL(url).host)
  })
}

/** What comes of calls over HTTP. @throws CloudError when nothing does */
export async function answered<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  try {
    return await call()
  } catch (error) {
    // What has refused an address is wrapped by the library that would have connected to it.
    for (let inner = error; inner instanceof Error; inner = inner.cause) if (inner instanceof CloudError) throw inner
    throw readErrorOf(error, signal, (thrown) => ({
      code: systemCode(thrown),
      message: "the host could not be reached",
    }))
  }
}

/** What an answer that is not taken means. */
export function refusal(response: Response, body: unknown, host: string): CloudError {
  // An answer that is no JSON is none of the API's: a proxy's, say.
  const status = response.ok ? 502 : response.status
  // GitHub's way to say "too many requests" (https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
  const isLimited = status === 403 && response.headers.get("x-ratelimit-remaining") === "0"
  const said = textIn(body, "message") ?? textIn(body, "detail") ?? `HTTP ${response.status}`
  return readError({ status: isLimited ? 429 : status, code: `HTTP${response.status}`, message: `${host}: ${said}` })
}

function bodyOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** A text of an object that somebody else made. */
export function textIn(value: unknown, field: string): string | undefined {
  const found: unknown = typeof value === "object" && value !== null ? Reflect.get(value, field) : undefined
  return typeof found === "string" && found !== "" ? found : undefined
}

/** A number of an object that somebody else made. */
export function numberIn(value: unknown, field: string): number | undefined {
  const found: unknown = typeof value === "object" && value !== null ? Reflect.get(value, field) : undefined
  return typeof found === "number" && Number.isFinite(found) ? found : undefined
}

function systemCode(error: unknown): string | undefined {
  for (let inner = error; inner instanceof Error; inner = inner.cause) {
    const { code } = inner as { code?: unknown }
    if (typeof code === "string") return code
  }
  return undefined
}
