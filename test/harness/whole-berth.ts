import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { installBase } from "../../dev/base.ts"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import type { Providers } from "../../src/clouds/provider.ts"
import { connect } from "../../src/connect.ts"
import type { Role } from "../../src/core/apis/apikey.ts"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import type { PrivateTargets } from "../../src/core/outbound/public-fetch.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import type { RetirementOptions } from "../../src/operator/connection/retirement.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { makeKey } from "./api-keys.ts"
import { eventually } from "./eventually.ts"
import { programClient } from "./program-client.ts"
import { Programs } from "./programs.ts"
import { simMarket } from "./sim-market.ts"
import { SimProvider } from "./sim-provider.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/** A whole Berth with a control plane of its own: operator, two façades, and an in-memory provider for type aws. */
export interface Installation {
  controlPlane: ControlPlane
  /** Client with the administrator's rights. */
  client: KubeClient
  provider: SimProvider
  project: string
  namespace: string
  keys: Record<Role, string>
  /** Base URLs of the façades, with `/1`. */
  urls: readonly string[]
  metricsUrls: readonly string[]
  /** Returns all log lines of its programs, at level trace. */
  logged(): string
  /** Returns a logger that writes like its programs' loggers. */
  log(fields: object): void
  stop(): Promise<void>
}

export interface InstallationOptions {
  retirement?: Pick<RetirementOptions, "graceSeconds" | "lookSeconds">
  providers?: Providers
  /** Caps of the whole installation. */
  caps?: SpendCaps
  /** Receivers of webhooks outside of the internet. */
  privateReceivers?: PrivateTargets
}

export async function startInstallation(options: InstallationOptions): Promise<Installation> {
  const { retirement, providers, caps, privateReceivers } = options
  const controlPlane = await startPrivateControlPlane()
  const { kubeconfigPath } = controlPlane
  const client = connect({ kubeconfig: kubeconfigPath })
  await installBase(client, AbortSignal.timeout(120_000))
  const project = `p-${randomBytes(4).toString("hex")}`
  const namespace = project
  await client.create(NAMESPACES, {
    metadata: { name: namespace, annotations: { "berth.dev/adopt-by-project": project } },
  })
  await client.apply(ORGANIZATIONS, { metadata: { name: "o" }, spec: { displayName: "O" } })
  await client.apply(PROJECTS, { metadata: { name: project }, spec: { displayName: project, organization: "o" } })
  const provider = new SimProvider(systemClock)
  const logsDir = await mkdtemp(join(tmpdir(), "berth-sealing-"))
  const receivers = { ...(privateReceivers && { privateReceivers }) }
  const market = simMarket(provider)
  const programs = new Programs({
    systemNamespace: SYSTEM_NAMESPACE,
    clientOf: (name) => programClient(name, { admin: client, kubeconfigPath }),
    market: {
      ...market,
      providers: { ...market.providers, ...providers },
    },
    level: "trace",
  })
  const operator = await programs.startOperator(
    { ...receivers, ...(caps && { caps }) },
    { ...(retirement && { retirement }) },
  )
  const facade = { ...receivers, requestsPerMinute: 100_000, defaultProject: project, logsDir }
  const facades = [
    await programs.startFacade(facade, { clouds: ["aws"] }),
    await programs.startFacade(facade, { clouds: ["aws"] }),
  ]
  // Until then every key is invalid, and failed authentications are limited.
  await eventually(async () => {
    const { status } = await client.get(PROJECTS, { name: project })
    if (status?.namespace === undefined) throw new Error(`${project} has no namespace: ${JSON.stringify(status)}`)
  })
  const keys: Record<Role, string> = { admin: "", developer: "", viewer: "" }
  for (const role of ["admin", "developer", "viewer"] as const) {
    keys[role] = await makeKey(client, namespace, role, { name: `key-of-${role}` })
  }
  const urls = facades.map(({ url }) => `${url}/1`)
  await eventually(async () => {
    for (const url of urls) {
      for (const key of Object.values(keys)) await usable(`${url}/connections`, key)
      for (const key of [keys.admin, keys.developer]) await usable(`${url}/jobs?dry_run=true`, key, { image: "a" })
    }
  })
  return {
    ...{ controlPlane, client, provider, project, namespace, keys, urls },
    metricsUrls: [operator, ...facades].flatMap(({ metricsUrl }) => metricsUrl ?? []),
    logged: () => programs.lines.join(""),
    log: (fields) => programs.logger("test").info(fields, "something happened"),
    stop: async () => {
      await programs.stop()
      await client.close()
      await controlPlane.stop()
      await rm(logsDir, { recursive: true, force: true })
    },
  }
}

/** @param body content of a POST, which works once the key's machine user has its rights; default: a GET */
async function usable(url: string, key: string, body?: object): Promise<void> {
  const headers = { "X-Service-Api-Key": key, "Content-Type": "application/json" }
  const request = body === undefined ? { headers } : { headers, method: "POST", body: JSON.stringify(body) }
  const response = await fetch(url, request)
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`)
}
