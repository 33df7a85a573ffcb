import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { load, loadAll } from "js-yaml"
import type { ResourceType } from "../src/apis/meta.ts"
import type { KubeClient } from "../src/kube/client.ts"
import { type ApiObject, apiVersionOf } from "../src/kube/resource.ts"
import { packageFile } from "../src/package.ts"
import { INSTALLER, installKinds } from "./install.ts"

/** Objects of every installation other than the kinds: namespaces, roles, the admission policy. */
const BASE_FOLDER = packageFile("manifests", "base")

const RBAC = { group: "rbac.authorization.k8s.io", version: "v1" }
const ADMISSION = { group: "admissionregistration.k8s.io", version: "v1" }

const RESOURCES: readonly ResourceType[] = [
  { group: "", version: "v1", kind: "Namespace", plural: "namespaces", namespaced: false },
  { group: "", version: "v1", kind: "ServiceAccount", plural: "serviceaccounts", namespaced: true },
  { ...RBAC, kind: "ClusterRole", plural: "clusterroles", namespaced: false },
  { ...RBAC, kind: "ClusterRoleBinding", plural: "clusterrolebindings", namespaced: false },
  { ...RBAC, kind: "Role", plural: "roles", namespaced: true },
  { ...RBAC, kind: "RoleBinding", plural: "rolebindings", namespaced: true },
  { ...ADMISSION, kind: "ValidatingAdmissionPolicy", plural: "validatingadmissionpolicies", namespaced: false },
  {
    ...ADMISSION,
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    namespaced: false,
  },
]

/** Installs or upgrades the objects of `kubectl apply -k manifests/base`. Throws KubeError, and the signal's reason. */
export async function installBase(client: KubeClient, signal: AbortSignal): Promise<void> {
  await installKinds(client, signal)
  for (const object of await baseObjects()) await client.apply(resourceOfObject(object), object, INSTALLER)
}

interface Kustomization {
  labels: { pairs: Record<string, string> }[]
  resources: string[]
}

/** Returns the objects of the folder's kustomization, in its order, without the kinds. */
async function baseObjects(): Promise<ApiObject[]> {
  const text = (file: string): Promise<string> => readFile(join(BASE_FOLDER, file), "utf8")
  const { labels, resources } = load(await text("kustomization.yaml")) as Kustomization
  const pairs = Object.assign({}, ...labels.map((label) => label.pairs)) as Record<string, string>
  const files = resources.filter((resource) => resource.endsWith(".yaml"))
  const objects = (await Promise.all(files.map(text))).flatMap((yaml) => loadAll(yaml) as ApiObject[])
  return objects.map((object) => ({
    ...object,
    metadata: { ...object.metadata, labels: { ...object.metadata.labels, ...pairs } },
  }))
}

function resourceOfObject({ apiVersion, kind, metadata }: ApiObject): ResourceType {
  const found = RESOURCES.find((resource) => resource.kind === kind && apiVersionOf(resource) === apiVersion)
  if (found === undefined)
    throw new Error(`manifests/base has ${apiVersion} ${kind} ${metadata.name}: name its resource`)
  return found
}
