import type { StoredApiKey } from "../../src/core/apis/apikey.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { RBAC_GROUP, ROLE_BINDINGS } from "../../src/core/identity/role-bindings.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { EventRecorder } from "../../src/core/kube/events.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { API_KEYS, LAUNCHES } from "../../src/core/resources.ts"
import { createApiKeyController } from "../../src/operator/apikey/controller.ts"
import type { ApiKeyControllerDependencies } from "../../src/operator/apikey/dependencies.ts"
import { BINDING_CACHE, MACHINE_USER_CACHE } from "../../src/operator/caches.ts"
import { kubeConfig, kubeconfigPath } from "../control-plane.ts"
import { eventually } from "./eventually.ts"
import { programClient } from "./program-client.ts"
import { silentLogger } from "./silent-logger.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

const PROGRAMS = ["berth-operator", "berth-facade"] as const
type Program = (typeof PROGRAMS)[number]

const ROLES = declareResource<ApiObject & { rules: object[] }>({
  ...{ group: RBAC_GROUP, version: "v1" },
  ...{ kind: "Role", plural: "roles", namespaced: true },
})

/**
 * Gives the programs in this namespace the rights that manifests/base gives them in Berth's own. The namespace can then
 * hold an installation of its own. In the shared namespace, an operator would wait until no other suite's operator
 * leads.
 */
export async function makeSystemNamespace(admin: KubeClient, namespace: string): Promise<void> {
  for (const resource of [ROLES, ROLE_BINDINGS]) {
    for (const name of PROGRAMS) {
      const { metadata: _, ...rest } = await admin.get<ApiObject>(resource, { namespace: SYSTEM_NAMESPACE, name })
      await admin.create<ApiObject>(resource, { ...rest, metadata: { namespace, name } })
    }
  }
}

/** Returns a client with exactly the rights that manifests/base gives a program. Call its `close`. */
export async function clientOf(program: Program): Promise<KubeClient> {
  const admin = new KubeClient(kubeConfig())
  const client = await programClient(program, { admin, kubeconfigPath: kubeconfigPath() })
  await admin.close()
  return client
}

/** Resolves when both programs may read Launches in the namespace: the API server applies new rights after a delay. */
export async function rightsArrive(namespace: string): Promise<void> {
  for (const program of PROGRAMS) {
    const client = await clientOf(program)
    await eventually(() => client.list(LAUNCHES, { namespace }))
    await client.close()
  }
}

/** An ApiKey controller for one namespace, with the operator's rights. */
export interface KeyController {
  apiKeys: Reflector<StoredApiKey>
  stop(): Promise<void>
}

export async function startKeyController(
  namespace: string,
  overrides: Partial<Pick<ApiKeyControllerDependencies, "clock">> = {},
): Promise<KeyController> {
  const client = await clientOf("berth-operator")
  const logger = silentLogger
  const clock = systemClock
  const apiKeys = new Reflector({ client, resource: API_KEYS, namespace, logger })
  const users = new Reflector({ client, ...MACHINE_USER_CACHE, logger })
  const bindings = new Reflector({ client, ...BINDING_CACHE, namespace, logger })
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: "test", logger })
  const options = { client, apiKeys, users, bindings, clock, recorder, logger, ...overrides }
  const controller = createApiKeyController(options)
  const stop = new AbortController()
  const loops = [apiKeys, users, bindings].map((reflector) => reflector.run(stop.signal))
  const running = controller.run(stop.signal, { abort: stop.signal })
  return {
    apiKeys,
    stop: async () => {
      stop.abort()
      await Promise.all([running, ...loops])
      await recorder.flush()
      await client.close()
    },
  }
}
