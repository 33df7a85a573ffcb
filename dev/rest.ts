import { setTimeout as delay } from "node:timers/promises"

/** A small client of Berth's own REST API. It uses only the public API. */
export interface RestClient {
  /** Creates a job from a YAML body, and returns its name. */
  submit(yaml: string): Promise<string>
  cancel(job: string): Promise<void>
  /** Returns the last lines of a job's output. */
  logTail(job: string, lines: number): Promise<string>
}

/**
 * Returns a client for `baseUrl`, which is without the `/1`. All calls throw the problem document's detail if they are
 * rejected.
 */
export function restClient(baseUrl: string, apiKey: string): RestClient {
  const call = async (path: string, init: RequestInit = {}): Promise<string> => {
    const response = await fetch(`${baseUrl}/1${path}`, {
      ...init,
      headers: { ...init.headers, "X-Service-Api-Key": apiKey },
    })
    const text = await response.text()
    if (response.ok) return text
    throw new Error(`${init.method ?? "GET"} ${path} was rejected with ${response.status}: ${text}`)
  }
  return {
    async submit(yaml) {
      const answer = await call("/jobs", {
        method: "POST",
        body: yaml,
        headers: { "Content-Type": "application/yaml" },
      })
      const { name } = JSON.parse(answer) as { name: string }
      return name
    },
    async cancel(job) {
      await call(`/jobs/${encodeURIComponent(job)}/cancel`, { method: "POST" })
    },
    logTail: (job, lines) => call(`/jobs/${encodeURIComponent(job)}/logs?tail=${lines}`),
  }
}

/** Resolves when the façade is ready. After `seconds`, throws with its last answer. */
export async function whenReady(baseUrl: string, seconds: number, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  for (;;) {
    const said = await fetch(`${baseUrl}/readyz?verbose`, { signal }).then(
      async (response) => (response.ok ? undefined : await response.text()),
      (error: unknown) => String(error),
    )
    if (said === undefined) return
    signal.throwIfAborted()
    if (performance.now() > deadline) throw new Error(`the façade is not ready after ${seconds} s:\n${said}`)
    await delay(100, undefined, { signal })
  }
}
