import { setTimeout as delay } from "node:timers/promises"

/** A small client of Berth's own REST API, as any user could write it. */
export interface RestClient {
  /** Creates a job from a YAML body; its name. */
  submit(yaml: string): Promise<string>
  cancel(job: string): Promise<void>
  /** The last lines of what a job wrote. */
  logTail(job: string, lines: number): Promise<string>
}

/** `baseUrl` without the `/1`. All calls throw with the problem document's detail when they are refused. */
export function restClient(baseUrl: string, apiKey: string): RestClient {
  const call = async (path: string, init: RequestInit = {}): Promise<string> => {
    const response = await fetch(`${baseUrl}/1${path}`, {
      ...init,
      headers: { ...init.headers, "X-Service-Api-Key": apiKey },
    })
    const text = await response.text()
    if (response.ok) return text
    throw new Error(`${init.method ?? "GET"} ${path} was refused with ${response.status}: ${text}`)
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

/** Resolves when the façade says that it is ready; throws with what it last said after `seconds`. */
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
