import { clusterOf, programCredentials } from "../../dev/program-credentials.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/**
 * Returns a client with exactly the rights that manifests/base gives a program. Call its `close`.
 * @param admin client of the cluster's administrator, to whom the kubeconfig belongs
 */
export async function programClient(
  name: "berth-operator" | "berth-facade",
  { admin, kubeconfigPath }: { admin: KubeClient; kubeconfigPath: string },
): Promise<KubeClient> {
  const credentials = await programCredentials({
    client: admin,
    cluster: clusterOf(kubeconfigPath),
    serviceAccount: { namespace: SYSTEM_NAMESPACE, name },
    onError: (error) => console.error(error),
  })
  // Valid for an hour, longer than any suite.
  credentials.stop()
  return new KubeClient(credentials.kubeConfig)
}
