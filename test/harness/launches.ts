import { randomUUID } from "node:crypto"
import type { Run } from "../../src/core/apis/job.ts"
import { type AgentStatus, type Launch, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { testNamespace } from "../control-plane.ts"
import { sharedClient } from "./namespace.ts"

/** Namespace with the kinds installed, its client, and functions that create Launches in it. */
export interface LaunchFixture {
  namespace: string
  client: KubeClient
  launch: (run: Partial<Run>, spec?: Partial<Launch["spec"]>) => Promise<StoredLaunch>
  read: (launch: StoredLaunch) => Promise<StoredLaunch>
  agentOf: (launch: StoredLaunch) => Promise<AgentStatus | undefined>
  end: (launch: StoredLaunch) => Promise<void>
}

/** Returns a fixture of its own. Call it where `beforeAll` may be called. */
export function launchFixture(prefix: string): LaunchFixture {
  const namespace = testNamespace(prefix)
  const client = sharedClient()
  const read = (launch: StoredLaunch) => client.get(LAUNCHES, { namespace, name: launch.metadata.name })
  return {
    namespace,
    client,
    read,
    launch: async (run, spec = {}) => {
      const uid = randomUUID()
      const object = launchObject({ namespace, uid, run, spec })
      return await client.create<StoredLaunch>(LAUNCHES, object as StoredLaunch)
    },
    agentOf: async (launch) => (await read(launch)).status?.agent,
    end: async ({ metadata: { name } }) => {
      await client.patch(LAUNCHES, { namespace, name }, { merge: { spec: { ended: true } } })
    },
  }
}

function launchObject(of: {
  namespace: string
  uid: string
  run: Partial<Run>
  spec: Partial<Launch["spec"]>
}): Launch {
  const { namespace, uid, run, spec } = of
  return {
    apiVersion: API_VERSION,
    kind: "Launch",
    metadata: { name: launchName(uid, 1), namespace },
    spec: {
      job: { namespace, name: "job", uid },
      number: 1,
      installation: "test",
      offer: {
        cloud: "local",
        region: "local",
        instanceType: "local",
        architecture: "amd64",
        provisioning: "onDemand",
        cpu: 1,
        memoryGib: 1,
        hourlyPriceUsd: 0,
        minimumBilledSeconds: 0,
      },
      run: { image: "none", ...run },
      gatewayUrl: "http://127.0.0.1:1",
      bootDeadlineSeconds: 600,
      startDeadlineSeconds: 600,
      lifetimeSeconds: 3600,
      ...spec,
    },
  }
}
