import { type ApiObject, declareResource } from "./resource.ts"

/** Kubernetes' own kinds that several parts of Berth read or write, with the fields that Berth reads. */
export interface Namespace extends ApiObject {
  status?: { phase?: string }
}

export interface ConfigMap extends ApiObject {
  data?: Record<string, string>
  /** Values in base64. */
  binaryData?: Record<string, string>
}

/** Kubernetes Secret. The values of `data` are base64. */
export interface Secret extends ApiObject {
  type?: string
  data?: Record<string, string>
}

const core = { group: "", version: "v1" } as const

export const NAMESPACES = declareResource<Namespace>({
  ...core,
  kind: "Namespace",
  plural: "namespaces",
  namespaced: false,
})

export const CONFIG_MAPS = declareResource<ConfigMap>({
  ...core,
  kind: "ConfigMap",
  plural: "configmaps",
  namespaced: true,
})

export const SECRETS = declareResource<Secret>({ ...core, kind: "Secret", plural: "secrets", namespaced: true })

/** core/v1 Event, which `kubectl describe` and `kubectl get events` show. */
export interface KubeEvent extends ApiObject {
  involvedObject: {
    apiVersion?: string | undefined
    kind?: string | undefined
    namespace?: string | undefined
    name: string
    uid?: string | undefined
    resourceVersion?: string | undefined
  }
  type: EventType
  reason: string
  message: string
  source: { component: string }
  reportingComponent: string
  reportingInstance: string
  count: number
  firstTimestamp: string
  lastTimestamp: string
}

export type EventType = "Normal" | "Warning"
