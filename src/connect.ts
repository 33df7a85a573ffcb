import { KubeConfig } from "@kubernetes/client-node"
import { KubeClient } from "./core/kube/client.ts"
import type { KubeOptions } from "./options.ts"

/** A client for the API server that the options name. */
export function connect({ kubeconfig }: Pick<KubeOptions, "kubeconfig">): KubeClient {
  const config = new KubeConfig()
  if (kubeconfig === undefined) config.loadFromDefault()
  else config.loadFromFile(kubeconfig)
  return new KubeClient(config)
}
