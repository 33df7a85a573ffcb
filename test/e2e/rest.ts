import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"

export interface RestCall {
  body?: string | Uint8Array<ArrayBuffer>
  /** Media type of the body. Default: YAML. */
  type?: string
  headers?: Record<string, string>
}

/** Calls the REST API of a stack with its environment file and returns the answer's text. Throws on an error. */
export async function restOf(
  dataDir: string,
  method: string,
  path: string,
  { body, type = "application/yaml", headers = {} }: RestCall = {},
): Promise<string> {
  const environment = await readFile(join(dataDir, "env"), "utf8")
  const value = (name: string) => new RegExp(`^${name}=(\\S+)$`, "m").exec(environment)?.[1] ?? ""
  const answer = await fetch(`${value("BERTH_URL")}/1${path}`, {
    method,
    headers: { "X-Service-Api-Key": value("BERTH_API_KEY"), "Content-Type": type, ...headers },
    ...(body !== undefined && { body }),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
  return text
}

/** Calls the REST API of a stack with a body in YAML, and returns the answer's text. Throws on an error. */
export function call(dataDir: string, method: string, path: string, yaml?: string): Promise<string> {
  return restOf(dataDir, method, path, yaml === undefined ? {} : { body: yaml })
}

/** Returns a job that runs a shell script, in the form of the REST API. */
export function shellJob(name: string, script: string, image = "alpine"): string {
  return JSON.stringify({ name, image, command: ["sh", "-c", script] })
}

/** Resolves as soon as a job has this status, or an array. */
export async function untilStatus(
  dataDir: string,
  name: string,
  status: string,
  { seconds = 100, collection = "jobs" }: { seconds?: number; collection?: "jobs" | "arrays" } = {},
): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  for (;;) {
    const said = await call(dataDir, "GET", `/${collection}/${name}`)
    if ((JSON.parse(said) as { status: string }).status === status) return
    if (performance.now() > deadline) throw new Error(`${name} is not ${status} after ${seconds} s: ${said}`)
    await delay(100)
  }
}
