import { ORGANIZATION_FINALIZER, type StoredOrganization } from "../../apis/organization.ts"
import type { StoredProject } from "../../apis/project.ts"
import { PROJECTS } from "../../identity/projects.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watches } from "../../runtime/controller.ts"
import { organizationWriter, type ProjectControllerOptions } from "../project/dependencies.ts"
import { addFinalizer, dropFinalizer, writeStatus } from "../writes.ts"
import { decide } from "./decide.ts"

/** Makes the controller that keeps an Organization as long as it has Projects. */
export function createOrganizationController(options: ProjectControllerOptions): Controller {
  const { organizations, projects, clock, logger } = options
  return new Controller({
    name: "organization",
    reconcile: (key, context) => reconcile(key, options, context),
    sources: [
      watches(organizations),
      watches(projects, ({ old, current }) =>
        current === undefined && old !== undefined ? [old.spec.organization] : [],
      ),
    ],
    clock,
    logger,
  })
}

async function reconcile(
  name: string,
  options: ProjectControllerOptions,
  context: ReconcileContext,
): Promise<ReconcileResult> {
  const organization = options.organizations.store.getByKey(name)
  if (organization === undefined) return {}
  const projects = await projectsOf(organization, options)
  const { status, action, requeueAfter } = decide(organization, projects, options.clock.now())
  const writer = organizationWriter(options)
  const current = status === undefined ? organization : await writeStatus(organization, status, writer, context)
  context.signal.throwIfAborted()
  if (action === "addFinalizer") await addFinalizer(current, ORGANIZATION_FINALIZER, writer, context)
  if (action === "dropFinalizer") await dropFinalizer(current, ORGANIZATION_FINALIZER, writer, context)
  return requeueAfter === undefined ? {} : { requeueAfter }
}

/** Names, in order. That a deleted organization has none is only believed of the API server: the cache may be late. */
async function projectsOf(
  { metadata }: StoredOrganization,
  { client, projects }: ProjectControllerOptions,
): Promise<string[]> {
  const its = (all: readonly StoredProject[]) => all.filter(({ spec }) => spec.organization === metadata.name)
  const cached = its(projects.store.list())
  const isEnough = cached.length > 0 || metadata.deletionTimestamp === undefined
  const found = isEnough ? cached : its((await client.list(PROJECTS)).items)
  return found.map((project) => project.metadata.name).sort()
}
