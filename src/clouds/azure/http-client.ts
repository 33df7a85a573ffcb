import type { Fetch } from "../../core/outbound/guarded-fetch.ts"

/** A request of Azure's SDKs. The SDK for storage still uses the older type of headers. */
interface SdkRequest {
  url: string
  method: string
  headers: SdkHeaders
  body?: unknown
  abortSignal?: { readonly aborted: boolean } | undefined
}

interface SdkHeaders {
  toJSON?: (options?: { preserveCase?: boolean }) => Record<string, string>
  toJson?: (options?: { preserveCase?: boolean }) => Record<string, string>
}

/** An answer in the form that all SDKs accept. */
interface SdkResponse<R> {
  request: R
  status: number
  headers: AnswerHeaders
  bodyAsText: string
}

/**
 * Sends the requests of Azure's SDKs by `fetch`. So one place checks the hosts, follows no redirect, and aborts calls.
 * It supports only text bodies, which is enough for calls that read.
 */
export function fetchClient(fetch: Fetch) {
  return {
    sendRequest: async <R extends SdkRequest>(request: R): Promise<SdkResponse<R>> => {
      const { url, method, headers, body } = request
      const json = headers.toJSON?.({ preserveCase: true }) ?? headers.toJson?.({ preserveCase: true }) ?? {}
      const response = await fetch(url, {
        method,
        headers: json,
        ...(typeof body === "string" && { body }),
        ...(request.abortSignal instanceof AbortSignal && { signal: request.abortSignal }),
      })
      const bodyAsText = await response.text()
      return { request, status: response.status, headers: new AnswerHeaders(response.headers), bodyAsText }
    },
  }
}

/** Headers of an answer, for both interfaces. */
class AnswerHeaders {
  readonly #headers: Headers

  constructor(headers: Headers) {
    this.#headers = headers
  }

  get(name: string): string | undefined {
    return this.#headers.get(name) ?? undefined
  }

  has(name: string): boolean {
    return this.#headers.has(name)
  }

  set(name: string, value: string | number | boolean): void {
    this.#headers.set(name, String(value))
  }

  delete(name: string): void {
    this.#headers.delete(name)
  }

  toJSON(): Record<string, string> {
    return Object.fromEntries(this.#headers)
  }

  toJson(): Record<string, string> {
    return this.toJSON()
  }

  [Symbol.iterator](): Iterator<[string, string]> {
    return this.#headers.entries()
  }
}
