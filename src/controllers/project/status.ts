import { type ConditionUpdate, findCondition, setCondition } from "../../apis/conditions.ts"
import { ANNOTATIONS } from "../../apis/meta.ts"
import { namespaceOf, ProjectCondition, type ProjectStatus, type StoredProject } from "../../apis/project.ts"
import type { Condition } from "../../apis/schema.ts"

/** How a project stands. */
export type Situation =
  | { is: "making" }
  | { is: "ready" }
  | { is: "organizationMissing" }
  | { is: "namespaceReserved" }
  | { is: "namespaceTaken" }
  | { is: "namespaceEnding" }
  | { is: "nameTaken"; name: string }
  | { is: "blocked"; jobs: number }
  | { is: "ending" }

interface Why {
  reason: string
  message: string
}

/** What only somebody's act can change. */
const STALLED: readonly Situation["is"][] = ["namespaceReserved", "namespaceTaken", "nameTaken", "blocked"]

/**
 * What is told of a project. For kstatus (Helm, Flux, Argo CD): Reconciling until its namespace and its members' rights are
 * there, then Ready; Stalled when only somebody's act can help. A project keeps the namespace that it once had. Pure.
 */
export function statusOf(project: StoredProject, situation: Situation, now: Date): ProjectStatus {
  const before = project.status?.conditions
  const { generation } = project.metadata
  const why = whyOf(project, situation)
  const isStalled = STALLED.includes(situation.is)
  const isReady = situation.is === "ready"
  const updates = [
    condition(ProjectCondition.Ready, isReady, why),
    condition(ProjectCondition.Reconciling, !isReady && !isStalled, why),
    ...(isStalled || findCondition(before, ProjectCondition.Stalled) !== undefined
      ? [condition(ProjectCondition.Stalled, isStalled, why)]
      : []),
  ]
  const conditions = updates.reduce<Condition[]>(
    (all, update) => setCondition(all, update, generation, now),
    [...(before ?? [])],
  )
  const namespace = isReady ? namespaceOf(project) : project.status?.namespace
  return { ...(namespace !== undefined && { namespace }), conditions, observedGeneration: generation }
}

function whyOf(project: StoredProject, situation: Situation): Why {
  const namespace = namespaceOf(project)
  const { name } = project.metadata
  switch (situation.is) {
    case "making":
      return { reason: "Making", message: `namespace ${namespace} and the rights of its members are being made` }
    case "ready":
      return { reason: "Ready", message: `its objects live in namespace ${namespace}` }
    case "organizationMissing":
      return {
        reason: "OrganizationNotFound",
        message: `there is no Organization ${project.spec.organization} yet: create it`,
      }
    case "namespaceReserved":
      return {
        reason: "NamespaceReserved",
        message: `no project may use namespace ${namespace}: create the project under another name`,
      }
    case "namespaceTaken": {
      const how = `annotate it with ${ANNOTATIONS.adopt}=${name} to let this project have it`
      return { reason: "NamespaceTaken", message: `namespace ${namespace} was not made for this project: ${how}` }
    }
    case "namespaceEnding":
      return {
        reason: "NamespaceTerminating",
        message: `namespace ${namespace} is being deleted: made anew when it is gone`,
      }
    case "nameTaken":
      return {
        reason: "NameTaken",
        message: `${situation.name} exists and was not made for this project, so it is not used: delete it`,
      }
    case "blocked": {
      const jobs = situation.jobs === 1 ? "1 job is" : `${situation.jobs} jobs are`
      return { reason: "JobsNotOver", message: `${jobs} not over yet: cancel or await them, and the project goes` }
    }
    case "ending":
      return { reason: "Terminating", message: `namespace ${namespace} is being deleted` }
  }
}

function condition(type: string, isTrue: boolean, why: Why): ConditionUpdate {
  return { type, status: isTrue ? "True" : "False", ...why }
}
