import { existsSync } from "node:fs"
import { chmod, mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import type Docker from "dockerode"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, SECRETS } from "../../src/core/kube/core.ts"
import { isNotFound } from "../../src/core/kube/errors.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { docker } from "../agent/images.ts"
import {
  type Container,
  containerOptions,
  type EnvVar,
  fieldOf,
  isReady,
  onlyContainer,
  PODS,
  type Pod,
  type Probe,
  portOf,
  type Volume,
} from "./pods.ts"

const NODE = "test-node"
/** Interval of readiness checks. A real node uses the probe's interval; a test does not wait that long. */
const READINESS_MS = 200
const PROBE_TIMEOUT_MS = 5000
const OUTPUT_LINES = 60

const core = { group: "", version: "v1", namespaced: true } as const
const SERVICE_ACCOUNTS = declareResource({ ...core, kind: "ServiceAccount", plural: "serviceaccounts" })
const CLAIMS = declareResource<ApiObject & { status?: object }>({
  ...core,
  kind: "PersistentVolumeClaim",
  plural: "persistentvolumeclaims",
})

/** Label of containers that names the process of their node. */
const OWNER = "berth.test/node"

const logger = { debug: () => undefined, info: () => undefined, warn: console.warn, error: console.error }

export interface KubeletOptions {
  /** Client of an administrator. */
  client: KubeClient
  /** Folder for volumes. */
  folder: string
  /** Address of the API server for containers. Its name must be in the server's certificate. */
  apiServer: { name: string; port: number }
  /** `name:address` entries for the containers that start now. */
  hosts: () => readonly string[]
  /** Mounts of every container beside its own volumes, `from:to:ro`. */
  binds: readonly string[]
}

/**
 * The only node of the cluster. It runs every Pod as a container of the Docker engine, with the user, capabilities,
 * environment, volumes and token of the Pod's spec. It reports the readiness to the API server, and stops the container
 * when the Pod is deleted.
 */
export class Kubelet {
  /** Failures that a node's administrator would notice: containers that exited, and probes that failed permanently. */
  readonly faults: string[] = []
  /** All pods that ever ran, as they were first seen. */
  readonly ran: Pod[] = []
  readonly #options: KubeletOptions
  readonly #pods: Reflector<Pod>
  readonly #containers = new Map<string, Docker.Container>()
  readonly #stop = new AbortController()
  readonly #loop: Promise<void>
  readonly #lives = new Map<string, Promise<void>>()

  constructor(options: KubeletOptions) {
    this.#options = options
    this.#pods = new Reflector({ client: options.client, resource: PODS, logger })
    this.#pods.onChange(({ current }) => {
      if (current === undefined || this.#lives.has(current.metadata.uid ?? "")) return
      this.ran.push(current)
      const life = this.#live(current).catch((error: unknown) => {
        if (!this.#stop.signal.aborted) this.faults.push(`${current.metadata.name}: ${String(error)}`)
      })
      this.#lives.set(current.metadata.uid ?? "", life)
    })
    this.#loop = this.#pods.run(this.#stop.signal)
  }

  /** Returns the ready pods of an app.kubernetes.io/component. */
  ready(component: string): Pod[] {
    return this.#pods.store
      .list()
      .filter((pod) => pod.metadata.labels?.["app.kubernetes.io/component"] === component && isReady(pod))
  }

  /** Returns the last output of the current containers, for the report of a failed test. */
  async output(): Promise<string> {
    const outputs = [...this.#containers].map(async ([name, container]) => `--- ${name}\n${await lastLines(container)}`)
    return (await Promise.all(outputs)).join("\n")
  }

  /** Kills all containers at once. */
  async close(): Promise<void> {
    this.#stop.abort()
    await this.#loop
    await Promise.all(this.#lives.values())
    await Promise.all([...this.#containers.values()].map((container) => container.remove({ force: true })))
  }

  async #live(pod: Pod): Promise<void> {
    const { client } = this.#options
    const { namespace, name, uid = "" } = pod.metadata
    const target = { apiVersion: "v1", kind: "Binding", metadata: { name }, target: { kind: "Node", name: NODE } }
    await client.createSubresource(PODS, { namespace, name }, target, { subresource: "binding" })
    const container = await this.#start(pod)
    const over = new AbortController()
    const exit = container.wait().then(({ StatusCode }: { StatusCode: number }) => StatusCode)
    const deleted = this.#pods.store.waitUntil(() => this.#isBeingDeleted(uid), this.#stop.signal)
    const address = await addressOf(container)
    await this.#tell(pod, "Running", { podIP: address })
    const tending = [this.#untilReady(pod, address, over.signal), this.#untilDead(pod, address, over.signal)]
    try {
      await Promise.race([deleted, exit])
      if (!this.#isBeingDeleted(uid)) await this.#ended(pod, container, await exit)
      await deleted
    } finally {
      over.abort()
      await Promise.all(tending)
    }
    await container.stop({ t: pod.spec.terminationGracePeriodSeconds }).catch(ignoreNotModified)
    await container.remove({ force: true })
    this.#containers.delete(name)
    await client
      .delete(PODS, { namespace, name }, { gracePeriodSeconds: 0, preconditions: { uid } })
      .catch(ignoreNotFound)
  }

  #isBeingDeleted(uid: string): boolean {
    const pod = this.#pods.store.getByUid(uid)
    return pod === undefined || pod.metadata.deletionTimestamp !== undefined
  }

  async #ended(pod: Pod, container: Docker.Container, code: number): Promise<void> {
    const ok = code === 0 && pod.spec.restartPolicy === "Never"
    if (!ok) this.faults.push(`${pod.metadata.name} ended with ${code}:\n${await lastLines(container)}`)
    await this.#tell(pod, ok ? "Succeeded" : "Failed", {})
  }

  async #start(pod: Pod): Promise<Docker.Container> {
    const { apiServer, hosts, binds } = this.#options
    const spec = onlyContainer(pod)
    const folders = await this.#volumes(pod)
    const api = [`KUBERNETES_SERVICE_HOST=${apiServer.name}`, `KUBERNETES_SERVICE_PORT=${apiServer.port}`]
    const env = [...api, ...(await this.#environment(pod, spec))]
    const options = containerOptions(pod, { env, folders, hosts: hosts(), binds })
    const container = await docker.createContainer({ ...options, Labels: { [OWNER]: String(process.pid) } })
    this.#containers.set(pod.metadata.name, container)
    await container.start()
    return container
  }

  async #environment(pod: Pod, { env = [], envFrom = [] }: Container): Promise<string[]> {
    const { namespace } = pod.metadata
    const sets = envFrom.map(async ({ secretRef }) => {
      if (secretRef === undefined) throw new Error("this node knows only envFrom.secretRef")
      const { data = {} } = await this.#options.client.get(SECRETS, { namespace, name: secretRef.name })
      return Object.entries(data).map(([key, value]) => `${key}=${Buffer.from(value, "base64").toString()}`)
    })
    const single = env.map(async (variable) => `${variable.name}=${await this.#valueOf(pod, variable)}`)
    return [...(await Promise.all(sets)).flat(), ...(await Promise.all(single))]
  }

  async #valueOf(pod: Pod, { name, value, valueFrom }: EnvVar): Promise<string> {
    if (valueFrom === undefined) return value ?? ""
    const { fieldRef, secretKeyRef } = valueFrom
    if (fieldRef !== undefined) return fieldOf(pod, fieldRef.fieldPath)
    if (secretKeyRef === undefined) throw new Error(`this node does not know where ${name} comes from`)
    const ref = { namespace: pod.metadata.namespace, name: secretKeyRef.name }
    const { data = {} } = await this.#options.client.get(SECRETS, ref)
    return Buffer.from(data[secretKeyRef.key] ?? "", "base64").toString()
  }

  /** Creates the Pod's volumes. Returns their folders by name. */
  async #volumes(pod: Pod): Promise<Map<string, string>> {
    const folders = new Map<string, string>()
    for (const volume of pod.spec.volumes ?? []) {
      const claim = volume.persistentVolumeClaim?.claimName
      const folder =
        claim === undefined
          ? join(this.#options.folder, "pods", pod.metadata.name, volume.name)
          : join(this.#options.folder, "claims", claim)
      await mkdir(folder, { recursive: true })
      // Like a volume with the Pod's fsGroup.
      await chmod(folder, 0o2777)
      if (claim !== undefined) await this.#bindClaim(pod, claim)
      for (const [path, content] of await this.#filesOf(pod, volume)) await writeFile(join(folder, path), content)
      folders.set(volume.name, folder)
    }
    return folders
  }

  async #bindClaim({ metadata: { namespace } }: Pod, name: string): Promise<void> {
    const status = { phase: "Bound", accessModes: ["ReadWriteOnce"], capacity: { storage: "10Gi" } }
    await this.#options.client.patchStatus(CLAIMS, { namespace, name }, { merge: { status } })
  }

  async #filesOf(pod: Pod, { name, emptyDir, persistentVolumeClaim, configMap, projected }: Volume): Promise<Files> {
    if (emptyDir !== undefined || persistentVolumeClaim !== undefined) return []
    if (configMap !== undefined) return this.#configMap(pod, configMap.name)
    if (projected === undefined) throw new Error(`this node can't make the volume ${name}`)
    const sources = projected.sources.map(async (source): Promise<Files> => {
      if (source.serviceAccountToken !== undefined)
        return [[source.serviceAccountToken.path, await this.#token(pod, source.serviceAccountToken.expirationSeconds)]]
      if (source.configMap !== undefined) {
        const paths = new Map(source.configMap.items?.map(({ key, path }) => [key, path]))
        const files = await this.#configMap(pod, source.configMap.name)
        return files.map(([key, content]) => [paths.get(key) ?? key, content])
      }
      return (source.downwardAPI?.items ?? []).map(({ path, fieldRef }) => [path, fieldOf(pod, fieldRef.fieldPath)])
    })
    return (await Promise.all(sources)).flat()
  }

  async #configMap({ metadata: { namespace } }: Pod, name: string): Promise<Files> {
    return Object.entries((await this.#options.client.get(CONFIG_MAPS, { namespace, name })).data ?? {})
  }

  /** Returns a token of the Pod's ServiceAccount that is valid while the Pod exists. */
  async #token({ metadata: { namespace, name, uid }, spec }: Pod, expirationSeconds: number): Promise<string> {
    const boundObjectRef = { kind: "Pod", apiVersion: "v1", name, uid }
    const request = {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: { expirationSeconds, boundObjectRef },
    }
    const account = { namespace, name: spec.serviceAccountName }
    const options = { subresource: "token" }
    const { status } = await this.#options.client.createSubresource<{ status: { token: string } }>(
      SERVICE_ACCOUNTS,
      account,
      request,
      options,
    )
    return status.token
  }

  async #untilReady(pod: Pod, address: string, over: AbortSignal): Promise<void> {
    const container = onlyContainer(pod)
    const { readinessProbe: probe } = container
    let told = false
    while (!over.aborted) {
      const ready = probe === undefined || (await answers(urlOf(container, probe, address)))
      if (ready !== told && !over.aborted) await this.#tell(pod, "Running", { podIP: address, ready })
      told = ready
      await delay(READINESS_MS, undefined, { signal: over }).catch(() => undefined)
    }
  }

  /** Runs the startup probe until it succeeds, then the liveness probe until the Pod ends, as a node does. */
  async #untilDead(pod: Pod, address: string, over: AbortSignal): Promise<void> {
    const container = onlyContainer(pod)
    const { startupProbe, livenessProbe } = container
    for (const [name, probe] of Object.entries({ startupProbe, livenessProbe })) {
      if (probe === undefined) continue
      const outcome = await followProbe(probe, urlOf(container, probe, address), {
        once: probe === startupProbe,
        over,
      })
      if (outcome === "failed") this.faults.push(`${pod.metadata.name} fails its ${name}`)
      if (outcome !== "answered") return
    }
  }

  async #tell(pod: Pod, phase: string, { podIP, ready = false }: { podIP?: string; ready?: boolean }): Promise<void> {
    const { namespace, name } = pod.metadata
    const status = ready ? "True" : "False"
    const lastTransitionTime = new Date().toISOString().replace(/[.]\d+Z$/, "Z")
    const conditions = ["Ready", "ContainersReady"].map((type) => ({ type, status, lastTransitionTime }))
    const merge = { status: { phase, conditions, ...(podIP !== undefined && { podIP, podIPs: [{ ip: podIP }] }) } }
    await this.#options.client.patchStatus(PODS, { namespace, name }, { merge }).catch(ignoreNotFound)
  }
}

/** Repeats the probe until it has failed or `over` is aborted; with `once`, also until it succeeds. */
async function followProbe(
  { periodSeconds, failureThreshold }: Probe,
  url: string,
  { once, over }: { once: boolean; over: AbortSignal },
): Promise<"answered" | "failed" | "over"> {
  for (let failures = 0; failures < failureThreshold; ) {
    await delay(periodSeconds * 1000, undefined, { signal: over }).catch(() => undefined)
    if (over.aborted) return "over"
    const answered = await answers(url)
    if (answered && once) return "answered"
    failures = answered ? 0 : failures + 1
  }
  return "failed"
}

type Files = [path: string, content: string][]

function urlOf(container: Container, { httpGet }: Probe, address: string): string {
  return `http://${address}:${portOf(container, httpGet.port)}${httpGet.path}`
}

async function answers(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) }).then(
    async (answer) => {
      await answer.body?.cancel()
      return answer.ok
    },
    () => false,
  )
}

async function addressOf(container: Docker.Container): Promise<string> {
  const { NetworkSettings } = await container.inspect()
  return NetworkSettings.Networks["bridge"]?.IPAddress ?? ""
}

async function lastLines(container: Docker.Container): Promise<string> {
  const framed = await container.logs({ stdout: true, stderr: true, tail: OUTPUT_LINES })
  // Each piece follows eight bytes with its stream and length.
  const pieces: string[] = []
  for (let at = 0; at + 8 <= framed.length; at += 8 + framed.readUInt32BE(at + 4)) {
    pieces.push(framed.subarray(at + 8, at + 8 + framed.readUInt32BE(at + 4)).toString())
  }
  return pieces.join("")
}

function ignoreNotFound(error: unknown): void {
  if (!isNotFound(error)) throw error
}

/** Ignores that the container has already ended. */
function ignoreNotModified(error: { statusCode?: number }): void {
  if (error.statusCode !== 304) throw error
}

/** Removes the containers of nodes whose process was killed before it could. */
export async function removeAbandonedPods(): Promise<void> {
  for (const { Id, Labels } of await docker.listContainers({ all: true, filters: { label: [OWNER] } })) {
    if (!existsSync(`/proc/${Labels[OWNER]}`)) await docker.getContainer(Id).remove({ force: true })
  }
}
