import { type Cluster, KubeConfig } from "@kubernetes/client-node"
import { type Clock, systemClock } from "../src/apis/clock.ts"
import { SERVICE_ACCOUNTS } from "../src/identity/machine-users.ts"
import type { KubeClient } from "../src/kube/client.ts"
import type { ObjectRef } from "../src/kube/resource.ts"

/** Lifetime of a token, seconds. A new one is requested at half of it. */
const TOKEN_SECONDS = 3600

/** Delay before a retry when no new token arrived, seconds. */
const AGAIN_SECONDS = 10

interface TokenRequest {
  status?: { token: string }
}

export interface ProgramCredentialsOptions {
  /** Must be allowed to create tokens of the ServiceAccount. */
  client: Pick<KubeClient, "createSubresource">
  /** The API server and its CA. */
  cluster: Cluster
  serviceAccount: ObjectRef
  /** Called when a token can't be renewed. The current one stays valid for some time. */
  onError: (error: unknown) => void
  clock?: Clock
}

/** A kubeconfig that gives a program exactly the rights of its ServiceAccount, as in a cluster. */
export interface ProgramCredentials {
  kubeConfig: KubeConfig
  /** Stops renewing tokens. */
  stop(): void
}

/** Gives a program its ServiceAccount's credentials, and renews them until they are stopped. */
export async function programCredentials(options: ProgramCredentialsOptions): Promise<ProgramCredentials> {
  const { client, cluster, serviceAccount, onError, clock = systemClock } = options
  const kubeConfig = new KubeConfig()
  const token = async (): Promise<string> => {
    const request = {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      spec: { expirationSeconds: TOKEN_SECONDS },
    }
    const answer = await client.createSubresource<TokenRequest>(SERVICE_ACCOUNTS, serviceAccount, request, {
      subresource: "token",
    })
    if (answer.status === undefined) throw new Error(`no token came for ServiceAccount ${serviceAccount.name}`)
    return answer.status.token
  }
  // The client reads its kubeconfig again every 30 s.
  const refresh = async (): Promise<void> =>
    kubeConfig.loadFromClusterAndUser(cluster, { name: serviceAccount.name, token: await token() })
  let stopped = false
  let cancel = (): void => undefined
  const refreshAfter = (seconds: number): void => {
    if (stopped) return
    cancel = clock.setTimer(seconds, () => {
      refresh().then(
        () => refreshAfter(TOKEN_SECONDS / 2),
        (error: unknown) => {
          if (!stopped) onError(error)
          refreshAfter(AGAIN_SECONDS)
        },
      )
    })
  }
  await refresh()
  refreshAfter(TOKEN_SECONDS / 2)
  return {
    kubeConfig,
    stop: () => {
      stopped = true
      cancel()
    },
  }
}

/** Returns the API server of a kubeconfig's current context. */
export function clusterOf(kubeconfigPath: string): Cluster {
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(kubeconfigPath)
  const cluster = kubeConfig.getCurrentCluster()
  if (cluster === null) throw new Error(`${kubeconfigPath} names no cluster: set its current-context`)
  return cluster
}
