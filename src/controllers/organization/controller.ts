import { ORGANIZATION_FINALIZER } from "../../apis/organization.ts"
import { Controller, type ReconcileContext, watches } from "../../runtime/controller.ts"
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

async function reconcile(name: string, options: ProjectControllerOptions, context: ReconcileContext): Promise<void> {
  const organization = options.organizations.store.getByKey(name)
  if (organization === undefined) return
  const projects = options.projects.store.list().filter(({ spec }) => spec.organization === name)
  const names = projects.map(({ metadata }) => metadata.name).sort()
  const { status, action } = decide(organization, names, options.clock.now())
  const writer = organizationWriter(options)
  const current = status === undefined ? organization : await writeStatus(organization, status, writer, context)
  context.signal.throwIfAborted()
  if (action === "addFinalizer") await addFinalizer(current, ORGANIZATION_FINALIZER, writer, context)
  if (action === "dropFinalizer") await dropFinalizer(current, ORGANIZATION_FINALIZER, writer, context)
}
