import { readFile } from "node:fs/promises"
import { Cluster, type Surroundings, startServers } from "../harness/cluster.ts"
import { simMarket } from "../harness/sim-market.ts"
import type { SimProvider } from "../harness/sim-provider.ts"

/** Organization and project of a team, as manifests. */
export const TEAM = `apiVersion: berth.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec: {displayName: Acme}
---
apiVersion: berth.dev/v1alpha1
kind: Project
metadata: {name: team}
spec: {displayName: Team, organization: acme}
`

/** Returns the manifests of a connection of the team to AWS, and of the Secret that it reads. */
export function connectionManifests(name: string, secret: string): string {
  return `apiVersion: v1
kind: Secret
metadata: {name: aws, namespace: team}
type: berth.dev/connection
stringData: {access_key_id: AKIAIOSFODNN7EXAMPLE, secret_access_key: ${secret}}
---
apiVersion: berth.dev/v1alpha1
kind: Connection
metadata: {name: ${name}, namespace: team}
spec: {type: aws, credentialsSecretRef: {name: aws}}
`
}

/** Parts outside of a cluster, with one provider of accounts of AWS. */
interface OperateSurroundings extends Pick<Surroundings, "clock" | "logsDir" | "binaries"> {
  provider: SimProvider
}

/** A cluster whose users call its API. */
export class Berth extends Cluster {
  /** Starts a cluster with what is in its folder. */
  static async start(dataDir: string, { provider, ...around }: OperateSurroundings): Promise<Berth> {
    return new Berth(await startServers(dataDir, around.binaries), {
      ...around,
      market: simMarket(provider),
      facade: { clouds: ["aws"] },
      operator: { retirement: { graceSeconds: 1, lookSeconds: 0.2 } },
    })
  }

  /** Sends a request to the project's API. */
  rest(project: string, key: string, path: string, init: { method?: string; body?: object } = {}): Promise<Response> {
    return fetch(`${this.url}/projects/${project}/1${path}`, {
      method: init.method ?? "GET",
      headers: { "x-service-api-key": key, "content-type": "application/json" },
      ...(init.body && { body: JSON.stringify(init.body) }),
    })
  }
}

/** Returns where etcd and its certificates are, for etcd's tools, from the command lines of the servers. */
export async function etcdEnvironment({ controlPlane: { pids } }: Berth): Promise<Record<string, string>> {
  const flag = async (pid: number, name: string) => {
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8")
    return new RegExp(`(?:^|\\0)--${name}=([^\\0]*)`).exec(line)?.[1] ?? ""
  }
  const api = pids["kube-apiserver"]
  return {
    ETCDCTL_ENDPOINTS: await flag(api, "etcd-servers"),
    ETCDCTL_CACERT: await flag(api, "etcd-cafile"),
    ETCDCTL_CERT: await flag(api, "etcd-certfile"),
    ETCDCTL_KEY: await flag(api, "etcd-keyfile"),
    ETCD_DATA: await flag(pids.etcd, "data-dir"),
  }
}
