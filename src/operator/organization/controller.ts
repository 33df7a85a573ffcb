import {
  ORGANIZATION_FINALIZER,
  type OrganizationStatus,
  type StoredOrganization,
} from "../../core/apis/organization.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import { ORGANIZATIONS, PROJECTS } from "../../core/resources.ts"
import { Controller, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { FIELD_MANAGER } from "../project/controller.ts"
import type { ProjectControllerDependencies } from "../project/dependencies.ts"
import { handled, handlesOrganization } from "../project/handled.ts"
import { addFinalizer, dropFinalizer, type Writer, writeStatus } from "../writes.ts"
import { decide, type OrganizationAction } from "./decide.ts"

/** Creates the controller that keeps an Organization as long as it has Projects. */
export function createOrganizationController(options: ProjectControllerDependencies): Controller {
  const { organizations, projects, clock, recorder, logger } = options
  const writer = organizationWriter(options)
  const reconciler: ObjectReconciler<StoredOrganization, string[], OrganizationStatus, OrganizationAction> = {
    store: handled(organizations.store, (organization) => handlesOrganization(organization, options)),
    clock,
    recorder,
    gather: (organization) => projectsOf(organization, options),
    decide,
    writeStatus: (organization, status, context) => writeStatus(organization, status, writer, context),
    act: (organization, action, context) => {
      const write = action === "addFinalizer" ? addFinalizer : dropFinalizer
      return write(organization, ORGANIZATION_FINALIZER, writer, context)
    },
  }
  return new Controller({
    name: "organization",
    reconcile: (key, context) => reconcileObject(key, reconciler, context),
    sources: [
      watchSource(organizations),
      watchSource(projects, ({ old, current }) => {
        if (old?.spec.organization === current?.spec.organization) return []
        return [old, current].flatMap((project) => project?.spec.organization ?? [])
      }),
    ],
    clock,
    logger,
  })
}

/**
 * Returns the sorted names of the projects. Only a live read proves that a deleted organization has none: the cache may
 * be stale.
 */
async function projectsOf(
  { metadata }: StoredOrganization,
  { client, projects }: ProjectControllerDependencies,
): Promise<string[]> {
  const its = (all: readonly StoredProject[]) => all.filter(({ spec }) => spec.organization === metadata.name)
  const cached = its(projects.store.list())
  const isEnough = cached.length > 0 || metadata.deletionTimestamp === undefined
  const found = isEnough ? cached : its((await client.list(PROJECTS)).items)
  return found.map((project) => project.metadata.name).sort()
}

function organizationWriter({ client, organizations }: ProjectControllerDependencies): Writer<StoredOrganization> {
  return { client, fieldManager: FIELD_MANAGER, resource: ORGANIZATIONS, store: organizations.store }
}
