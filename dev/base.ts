import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { load, loadAll } from "js-yaml"
import type { ResourceType } from "../src/core/apis/meta.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import { type ApiObject, apiVersionOf } from "../src/core/kube/resource.ts"
import { packageFile } from "../src/core/package.ts"
import { INSTALLER, installKinds } from "./install.ts"

/** Objects of every installation other than the kinds: namespaces, roles, the admission policy. */
const BASE_FOLDER = packageFile("manifests", "base")

const RBAC = { group: "rbac.authorization.k8s.io", version: "v1" }
const ADMISSION = { group: "admissionregistration.k8s.io", version: "v1" }

/** Kind of the objects that put an admission policy into effect. */
export const POLICY_BINDINGS = {
  ...ADMISSION,
  kind: "ValidatingAdmissionPolicyBinding",
  plural: "validatingadmissionpolicybindings",
  namespaced: false,
} as const

const RESOURCES: readonly ResourceType[] = [
  { group: "", version: "v1", kind: "Namespace", plural: "namespaces", namespaced: false },
  { group: "", version: "v1", kind: "ServiceAccount", plural: "serviceaccounts", namespaced: true },
  { ...RBAC, kind: "ClusterRole", plural: "clusterroles", namespaced: false },
  { ...RBAC, kind: "ClusterRoleBinding", plural: "clusterrolebindings", namespaced: false },
  { ...RBAC, kind: "Role", plural: "roles", namespaced: true },
  { ...RBAC, kind: "RoleBinding", plural: "rolebindings", namespaced: true },
  { ...ADMISSION, kind: "ValidatingAdmissionPolicy", plural: "validatingadmissionpolicies", namespaced: false },
  POLICY_BINDINGS,
]

/** Installs or upgrades the objects of `kubectl apply -k manifests/base`. Throws KubeError, and the signal's reason. */
export async function installBase(client: KubeClient, signal: AbortSignal): Promise<void> {
  await installKinds(client, signal)
  const { labels, resources } = await kustomization()
  for (const file of resources.filter((resource) => resource.endsWith(".yaml"))) await install(client, file, labels)
}

/** Installs or upgrades the policy that makes specs immutable. The API server uses it a moment later. */
export async function applySpecLimits(client: KubeClient): Promise<void> {
  await install(client, "spec-limits.yaml", (await kustomization()).labels)
}

interface Kustomization {
  labels: { pairs: Record<string, string> }[]
  resources: string[]
}

async function kustomization(): Promise<Kustomization> {
  return load(await baseFile("kustomization.yaml")) as Kustomization
}

/** Applies a file's objects, with the kustomization's labels. */
async function install(client: KubeClient, file: string, labels: Kustomization["labels"]): Promise<void> {
  const pairs = Object.assign({}, ...labels.map((label) => label.pairs)) as Record<string, string>
  for (const { metadata, ...object } of loadAll(await baseFile(file)) as ApiObject[]) {
    const labelled = { ...object, metadata: { ...metadata, labels: { ...metadata.labels, ...pairs } } }
    await client.apply(resourceOfObject(labelled), labelled, INSTALLER)
  }
}

function baseFile(file: string): Promise<string> {
  return readFile(join(BASE_FOLDER, file), "utf8")
}

function resourceOfObject({ apiVersion, kind, metadata }: ApiObject): ResourceType {
  const found = RESOURCES.find((resource) => resource.kind === kind && apiVersionOf(resource) === apiVersion)
  if (found === undefined)
    throw new Error(`manifests/base has ${apiVersion} ${kind} ${metadata.name}: name its resource`)
  return found
}
