import { CloudError } from "../../core/outbound/errors.ts"
import type { Fetch } from "../../core/outbound/guarded-fetch.ts"
import { readError, toReadError } from "../../core/outbound/read-errors.ts"

/** Answer in JSON, with the headers of pages and scopes. */
export interface Answer {
  body: unknown
  headers: Headers
}

/** Calls a registry's API, and accepts only JSON. @throws CloudError */
export async function ask(fetch: Fetch, url: string, init: RequestInit, signal: AbortSignal): Promise<Answer> {
  return await callHttp(signal, async () => {
    const response = await fetch(url, init)
    const body = bodyOf(await response.text())
    if (response.ok && body !== undefined) return { body, headers: response.headers }
    throw refusal(response, body, new URL(url).host)
  })
}

/** Runs a call over HTTP. @throws CloudError if it fails */
export async function callHttp<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
  try {
    return await call()
  } catch (error) {
    // Errors of a rejected address are wrapped by the HTTP library.
    for (let inner = error; inner instanceof Error; inner = inner.cause) if (inner instanceof CloudError) throw inner
    throw toReadError(error, signal, (thrown) => ({
      code: systemCode(thrown),
      message: "the host could not be reached",
    }))
  }
}

/** Returns the error for a rejected answer. */
export function refusal(response: Response, body: unknown, host: string): CloudError {
  // An answer without JSON is not from the API, but from a proxy, for example.
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

/** Returns a text field of an untrusted object. */
export function textIn(value: unknown, field: string): string | undefined {
  const found: unknown = typeof value === "object" && value !== null ? Reflect.get(value, field) : undefined
  return typeof found === "string" && found !== "" ? found : undefined
}

/** Returns a number field of an untrusted object. */
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
