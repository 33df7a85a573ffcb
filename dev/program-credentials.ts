import { type Cluster, KubeConfig } from "@kubernetes/client-node"
import { type Clock, secondsBetween, systemClock } from "../src/core/apis/clock.ts"
import { SERVICE_ACCOUNTS } from "../src/core/identity/machine-users.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import type { ObjectRef } from "../src/core/kube/resource.ts"

/** Lifetime of a token, seconds. A new one is requested at half of it. */
const TOKEN_SECONDS = 3600

/** Delay between two looks at the age of a token, and before a retry when no new one arrived, seconds. */
const LOOK_SECONDS = 10

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
  let isDue = dueAfter(clock, TOKEN_SECONDS / 2)
  const look = (): void => {
    if (!isDue()) {
      lookLater()
      return
    }
    const renewed = refresh().then(
      () => {
        isDue = dueAfter(clock, TOKEN_SECONDS / 2)
      },
      (error: unknown) => {
        if (!stopped) onError(error)
      },
    )
    void renewed.then(lookLater)
  }
  const lookLater = (): void => {
    if (!stopped) cancel = clock.setTimer(LOOK_SECONDS, look)
  }
  await refresh()
  lookLater()
  return {
    kubeConfig,
    stop: () => {
      stopped = true
      cancel()
    },
  }
}

/**
 * Returns a function that returns true after `seconds` of this process's own time or of the calendar. The API server measures
 * a token by the calendar, which a laptop's sleep moves ahead. A correction back makes the token one of the future.
 */
function dueAfter(clock: Clock, seconds: number): () => boolean {
  const begun = { monotonic: clock.monotonic(), calendar: clock.now() }
  return () => {
    const byCalendar = secondsBetween(begun.calendar, clock.now())
    return clock.monotonic() - begun.monotonic >= seconds || byCalendar >= seconds || byCalendar < 0
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
