import { setTimeout as delay } from "node:timers/promises"
import { type ApiKey, isBound } from "../src/core/apis/apikey.ts"
import { type CustomResourceDefinition, crdObjects } from "../src/core/apis/crd.ts"
import { ANNOTATIONS } from "../src/core/apis/meta.ts"
import { hashKey, makeApiKey, parseKeyId } from "../src/core/identity/apikeys.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import { NAMESPACES } from "../src/core/kube/core.ts"
import { ifFound, isNotFound } from "../src/core/kube/errors.ts"
import { type ApiObject, declareResource } from "../src/core/kube/resource.ts"
import { API_KEYS, ORGANIZATIONS, PROJECTS } from "../src/core/resources.ts"

/** The organization, project and namespace that every stack on one machine has. */
export const DEFAULT_NAME = "default"

interface Crd extends ApiObject {
  spec?: CustomResourceDefinition["spec"]
  status?: { conditions?: { type: string; status: string }[] }
}

/** Kind of the objects that define Berth's kinds. */
export const CRD_KIND = {
  group: "apiextensions.k8s.io",
  version: "v1",
  kind: "CustomResourceDefinition",
  plural: "customresourcedefinitions",
  namespaced: false,
} as const

const CRDS = declareResource<Crd>(CRD_KIND)

/** Field manager of all installed objects, in server-side apply. */
export const INSTALLER = { fieldManager: "berth-install", force: true }

/** Installs or upgrades the kinds, and waits until the API server serves them. */
export async function installKinds(client: KubeClient, signal: AbortSignal): Promise<void> {
  const names = await Promise.all(
    crdObjects().map(async (crd) => (await client.apply(CRDS, crd, INSTALLER)).metadata.name),
  )
  await Promise.all(names.map((name) => established(client, name, signal)))
}

async function established(client: KubeClient, name: string, signal: AbortSignal): Promise<void> {
  const isEstablished = (crd: Crd) =>
    crd.status?.conditions?.some(({ type, status }) => type === "Established" && status === "True") ?? false
  const crd = await client.get(CRDS, { name })
  if (isEstablished(crd)) return
  const changes = client.watch(CRDS, {
    fieldSelector: `metadata.name=${name}`,
    ...(crd.metadata.resourceVersion !== undefined && { resourceVersion: crd.metadata.resourceVersion }),
    signal,
  })
  for await (const change of changes) {
    if (change.type !== "BOOKMARK" && isEstablished(change.object)) return
  }
  throw new Error(`the API server has not established the kind ${name}: see \`kubectl describe crd ${name}\``)
}

/**
 * Creates the default organization and project, if they are missing. The project adopts Kubernetes' own namespace
 * `default`, so that a plain `kubectl apply` uses it. The project controller decides whether the project gets the
 * namespace.
 */
export async function installDefaults(client: KubeClient): Promise<void> {
  await client.apply(
    NAMESPACES,
    { metadata: { name: DEFAULT_NAME, annotations: { [ANNOTATIONS.adopt]: DEFAULT_NAME } } },
    INSTALLER,
  )
  await client.apply(
    ORGANIZATIONS,
    { metadata: { name: DEFAULT_NAME }, spec: { displayName: "Default", category: "personal" } },
    INSTALLER,
  )
  await client.apply(
    PROJECTS,
    {
      metadata: { name: DEFAULT_NAME },
      spec: { displayName: "Default", organization: DEFAULT_NAME, namespace: DEFAULT_NAME },
    },
    INSTALLER,
  )
}

/** Resolves when the default project has its namespace. An operator must be running. */
export async function untilProject(client: KubeClient, signal: AbortSignal): Promise<void> {
  const hasNamespace = async (): Promise<boolean> =>
    (await client.get(PROJECTS, { name: DEFAULT_NAME })).status?.namespace !== undefined
  while (!(await hasNamespace())) await delay(50, undefined, { signal })
}

const API_KEY_REF = { namespace: DEFAULT_NAME, name: "local-admin" }

/**
 * Returns an admin key of the default project. Resolves when its machine user has its rights, so an operator must be
 * running.
 * @param kept key that an earlier start returned; it is used again if its ApiKey exists
 */
export async function installApiKey(
  client: KubeClient,
  kept: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  const value = kept !== undefined && (await isInstalled(client, kept)) ? kept : await newApiKey(client, signal)
  await untilApiKey(client, (key) => key !== undefined && isBound(key), signal)
  return value
}

async function newApiKey(client: KubeClient, signal: AbortSignal): Promise<string> {
  const { value, keyId, tokenHash } = makeApiKey()
  await client.delete(API_KEYS, API_KEY_REF).catch((error: unknown) => {
    if (!isNotFound(error)) throw error
  })
  // The former key is deleted when its machine user is deleted.
  await untilApiKey(client, (key) => key === undefined, signal)
  await client.create(API_KEYS, {
    apiVersion: "berth.dev/v1alpha1",
    kind: "ApiKey",
    metadata: API_KEY_REF,
    spec: { role: "admin", keyId, tokenHash },
  })
  return value
}

/** Polls the installed key until the condition is true. */
async function untilApiKey(
  client: KubeClient,
  condition: (key: ApiKey | undefined) => boolean,
  signal: AbortSignal,
): Promise<void> {
  while (!condition(await findApiKey(client))) await delay(50, undefined, { signal })
}

async function isInstalled(client: KubeClient, value: string): Promise<boolean> {
  const key = await findApiKey(client)
  return key?.spec.keyId === parseKeyId(value) && key?.spec.tokenHash === hashKey(value)
}

async function findApiKey(client: KubeClient): Promise<ApiKey | undefined> {
  return ifFound(client.get(API_KEYS, API_KEY_REF))
}
