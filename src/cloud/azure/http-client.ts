import type { Fetch } from "../guarded-fetch.ts"

/** A request as Azure's SDKs make it; the one for storage still has the older form of headers. */
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

/** The answer in the form that all of them take. */
interface SdkResponse<R> {
  request: R
  status: number
  headers: AnswerHeaders
  bodyAsText: string
}

/**
 * Sends what Azure's SDKs ask for by `fetch`, so that one place decides which hosts are called, that no redirect is
 * followed, and when it ends. Good for bodies of text, which all are that only read.
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

/** Headers of an answer, by either interface. */
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
