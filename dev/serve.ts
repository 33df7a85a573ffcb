import { once } from "node:events"
import { ConfigFile } from "../src/cli/context.ts"
import { Terminal } from "./bootstrap/terminal.mjs"
import { contextNameOf } from "./context.ts"
import { DEFAULT_NAME } from "./install.ts"
import type { ServeOptions } from "./options.ts"
import { requireFreePorts } from "./own-ports.ts"
import { prepare } from "./prepare.ts"
import { type Stack, startStack } from "./stack.ts"

/**
 * Runs a stack until the signal, and keeps its data for the next start. Returns the exit code. If ports are not free,
 * throws an Error that names them, before it starts anything.
 */
export async function runServe(options: ServeOptions, signal: AbortSignal): Promise<number> {
  const terminal = new Terminal()
  const report = (line: string) => terminal.line(line)
  await requireFreePorts(options.port)
  const prepared = await prepare(options, terminal, signal)
  const stack = await startStack({ ...options, ...prepared, durable: true, report, signal })
  try {
    report(whatToTry(stack, keepContext(options.configHome, stack)))
    await Promise.race([stopped(signal), stack.failed])
    return 0
  } finally {
    report("\nstopping; running jobs are started again next time ...")
    await stack.stop()
    report("stopped")
  }
}

async function stopped(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort")
}

/** Name of a stack's context, and of the current one. */
interface KeptContext {
  name: string
  current: string
}

/**
 * Writes the context of the command `berth`, as kind does with kubectl's. Another current context stays, and so do those
 * of other stacks.
 */
function keepContext(configHome: string, { url, apiKey }: Pick<Stack, "url" | "apiKey">): KeptContext {
  const config = new ConfigFile({ XDG_CONFIG_HOME: configHome })
  const { contexts, ...before } = config.read()
  const name = contextNameOf(contexts, { url, apiKey })
  const { current = name } = before
  config.write({ current, contexts: { ...contexts, [name]: { url, key: apiKey } } })
  return { name, current }
}

/**
 * Returns the address of the console that signs in with one click. The key is in its fragment, which browsers send to no
 * server.
 */
function consoleAddress({ url, apiKey }: Pick<Stack, "url" | "apiKey">): string {
  return `${url}/console/#${new URLSearchParams({ project: DEFAULT_NAME, key: apiKey })}`
}

function whatToTry(stack: Pick<Stack, "url" | "apiKey" | "environmentFile">, { name, current }: KeptContext): string {
  const { url, environmentFile } = stack
  const context =
    current === name
      ? `npx berth uses the context ${name}, which is the current one.`
      : `npx berth context use ${name} (the current context is ${current}).`
  return `
Berth is up at ${url} (Ctrl-C ends it). In a browser:

  ${consoleAddress(stack)}

in another terminal:

  . ${environmentFile}
  berth run --image busybox:1.36 --entrypoint echo -- Ahoy
  berth ps -a
  berth check

or with kubectl:

  kubectl apply -f manifests/samples/hello.yaml
  kubectl get bj --watch
  kubectl describe bj hello

or over REST:

  curl -H "X-Service-Api-Key: $BERTH_API_KEY" -H "Content-Type: application/yaml" \\
    --data-binary @manifests/samples/rest/submit.yaml "$BERTH_URL/1/jobs"
  curl -H "X-Service-Api-Key: $BERTH_API_KEY" "$BERTH_URL/1/jobs/submitted"
  curl -H "X-Service-Api-Key: $BERTH_API_KEY" "$BERTH_URL/1/jobs/submitted/logs?follow=true"

without these variables: ${context}

as a person (any name will do here), who may have organizations and projects of their own:

  TOKEN=$(npm run --silent login)
  curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\
    --data '{"name": "Acme"}' "$BERTH_URL/1/organizations"
`
}
