import { systemClock } from "../../src/core/apis/clock.ts"
import { JOB, type StoredJob } from "../../src/core/apis/job.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { IDENTITIES_NAMESPACE } from "../../src/core/identity/machine-users.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { EventRecorder } from "../../src/core/kube/events.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { declareResource } from "../../src/core/kube/resource.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { MACHINE_USER_CACHE, MEMBER_BINDING_CACHE, NAMESPACE_CACHE } from "../../src/operator/caches.ts"
import { createOrganizationController } from "../../src/operator/organization/controller.ts"
import { createProjectController } from "../../src/operator/project/controller.ts"
import { clientOf } from "./machine-users.ts"
import { silentLogger } from "./silent-logger.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/** The project and organization controllers, with only the operator's rights. */
export interface ProjectControllers {
  stop(): Promise<void>
}

/** @param labelSelector selects a suite's own projects, because projects are cluster-scoped */
export async function startProjectControllers(labelSelector?: string): Promise<ProjectControllers> {
  return startProjectControllersBy(await clientOf("berth-operator"), { labelSelector })
}

/** Starts the controllers with a client, which they close. @param watchNamespace only namespace that they serve */
export async function startProjectControllersBy(
  client: KubeClient,
  { labelSelector, watchNamespace }: { labelSelector?: string | undefined; watchNamespace?: string },
): Promise<ProjectControllers> {
  const options = { ...projectOptions(client, labelSelector), watchNamespace }
  const { projects, organizations, namespaces, memberBindings, users, jobs, recorder } = options
  const caches = [projects, organizations, namespaces, memberBindings, users, jobs]
  const stop = new AbortController()
  const controllers = [createProjectController(options), createOrganizationController(options)]
  const running = [
    ...caches.map((reflector) => reflector.run(stop.signal)),
    ...controllers.map((controller) => controller.run(stop.signal, { abort: stop.signal })),
  ]
  return {
    stop: async () => {
      stop.abort()
      await Promise.all(running)
      await recorder.flush()
      await client.close()
    },
  }
}

/** Returns the options of these controllers; their caches stay empty until they run. */
export function projectOptions(client: KubeClient, labelSelector?: string) {
  const logger = silentLogger
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: "test", logger })
  const base = { client, logger }
  return {
    ...{ ...base, clock: systemClock, recorder, reservedNamespaces: [SYSTEM_NAMESPACE, IDENTITIES_NAMESPACE] },
    projects: new Reflector<StoredProject>({ ...base, labelSelector, resource: PROJECTS }),
    organizations: new Reflector<StoredOrganization>({ ...base, labelSelector, resource: ORGANIZATIONS }),
    namespaces: new Reflector({ ...base, ...NAMESPACE_CACHE }),
    memberBindings: new Reflector({ ...base, ...MEMBER_BINDING_CACHE }),
    users: new Reflector({ ...base, ...MACHINE_USER_CACHE }),
    jobs: new Reflector<StoredJob>({ ...base, resource: declareResource<StoredJob>(JOB) }),
  }
}
