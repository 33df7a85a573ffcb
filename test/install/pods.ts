import type { ContainerCreateOptions } from "dockerode"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"

/** Fields of a Pod that the chart's pods have. The API server has filled in the defaults. */
export interface Pod extends ApiObject {
  spec: PodSpec
  status?: { phase?: string; podIP?: string; conditions?: { type: string; status: string }[] }
}

interface PodSpec {
  nodeName?: string
  serviceAccountName: string
  restartPolicy: "Always" | "Never"
  terminationGracePeriodSeconds: number
  securityContext?: SecurityContext & { fsGroup?: number }
  initContainers?: unknown[]
  containers: Container[]
  volumes?: Volume[]
}

export interface Container {
  name: string
  image: string
  command?: string[]
  args?: string[]
  env?: EnvVar[]
  envFrom?: { secretRef?: { name: string } }[]
  ports?: { name?: string; containerPort: number }[]
  startupProbe?: Probe
  livenessProbe?: Probe
  readinessProbe?: Probe
  resources?: { limits?: { memory?: string } }
  securityContext?: SecurityContext
  volumeMounts?: { name: string; mountPath: string; readOnly?: boolean }[]
}

export interface EnvVar {
  name: string
  value?: string
  valueFrom?: { fieldRef?: { fieldPath: string }; secretKeyRef?: { name: string; key: string } }
}

export interface Probe {
  httpGet: { path: string; port: string | number }
  periodSeconds: number
  failureThreshold: number
}

interface SecurityContext {
  runAsUser?: number
  runAsGroup?: number
  readOnlyRootFilesystem?: boolean
  allowPrivilegeEscalation?: boolean
  capabilities?: { add?: string[]; drop?: string[] }
}

export interface Volume {
  name: string
  emptyDir?: object
  persistentVolumeClaim?: { claimName: string }
  configMap?: { name: string }
  projected?: { sources: ProjectedSource[] }
}

interface ProjectedSource {
  serviceAccountToken?: { path: string; expirationSeconds: number }
  configMap?: { name: string; items?: { key: string; path: string }[] }
  downwardAPI?: { items: { path: string; fieldRef: { fieldPath: string } }[] }
}

export const PODS = declareResource<Pod>({ group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true })

/** Parts of a container that the node adds. */
export interface Surroundings {
  env: readonly string[]
  /** Folders of this host, by volume. */
  folders: ReadonlyMap<string, string>
  /** `name:address` entries that a cluster's DNS would return. */
  hosts: readonly string[]
  /** Further mounts, `from:to:ro`. */
  binds: readonly string[]
}

/** Returns the only container of a Pod of the chart. @throws Error if there are several */
export function onlyContainer({ metadata, spec }: Pod): Container {
  const [container, ...others] = spec.containers
  if (container === undefined || others.length > 0 || spec.initContainers !== undefined)
    throw new Error(`pod ${metadata.name} has several containers: this node runs one`)
  return container
}

/** Returns the Docker engine's options for a container, with everything that the Pod's security context requests. */
export function containerOptions(pod: Pod, { env, folders, hosts, binds }: Surroundings): ContainerCreateOptions {
  const container = onlyContainer(pod)
  const security = { ...pod.spec.securityContext, ...container.securityContext }
  const { runAsUser, runAsGroup, readOnlyRootFilesystem, allowPrivilegeEscalation, capabilities } = security
  const memory = container.resources?.limits?.memory
  const mounts = (container.volumeMounts ?? []).map(({ name, mountPath, readOnly }) => {
    const folder = folders.get(name)
    if (folder === undefined) throw new Error(`pod ${pod.metadata.name} has no volume ${name}`)
    return `${folder}:${mountPath}${readOnly === true ? ":ro" : ""}`
  })
  return {
    Image: container.image,
    ...(container.command !== undefined && { Entrypoint: container.command }),
    Cmd: container.args ?? [],
    Env: [...env],
    User: `${runAsUser ?? 0}:${runAsGroup ?? 0}`,
    Hostname: pod.metadata.name,
    HostConfig: {
      Binds: [...mounts, ...binds],
      ExtraHosts: [...hosts],
      GroupAdd: [String(pod.spec.securityContext?.fsGroup ?? 0)],
      ReadonlyRootfs: readOnlyRootFilesystem === true,
      CapDrop: capabilities?.drop ?? [],
      CapAdd: capabilities?.add ?? [],
      SecurityOpt: allowPrivilegeEscalation === false ? ["no-new-privileges"] : [],
      ...(memory !== undefined && { Memory: bytesOf(memory) }),
    },
  }
}

/** Returns the value of a field of the Pod itself, like the downward API. */
export function fieldOf({ metadata }: Pod, path: string): string {
  const fields: Record<string, string | undefined> = {
    "metadata.namespace": metadata.namespace,
    "metadata.name": metadata.name,
  }
  const value = fields[path]
  if (value === undefined) throw new Error(`this node does not know the field ${path} of a pod`)
  return value
}

/** Returns the port of a probe or a Service. */
export function portOf(container: Container, port: string | number): number {
  if (typeof port === "number") return port
  const found = container.ports?.find(({ name }) => name === port)
  if (found === undefined) throw new Error(`container ${container.name} has no port ${port}`)
  return found.containerPort
}

export function isReady({ metadata, status }: Pod): boolean {
  if (metadata.deletionTimestamp !== undefined) return false
  return status?.conditions?.some((condition) => condition.type === "Ready" && condition.status === "True") === true
}

const UNITS: Record<string, number> = { Mi: 2 ** 20, Gi: 2 ** 30 }

function bytesOf(quantity: string): number {
  const [, number, unit = ""] = /^(\d+)(Mi|Gi)$/.exec(quantity) ?? []
  const factor = UNITS[unit]
  if (factor === undefined) throw new Error(`this node reads Mi and Gi, not ${quantity}`)
  return Number(number) * factor
}
