import Type, { type Static } from "typebox"
import { ROLES } from "./apikey.ts"
import { SpendCapsSchema, SpendingStatus, WITHIN_CAPS } from "./caps.ts"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { DisplayName, GroupIdSchema, UserIdSchema } from "./organization.ts"
import { ConditionList, immutable, ObservedGeneration, StringEnum, Text } from "./schema.ts"

export const ProjectSpecSchema = Type.Object(
  {
    displayName: DisplayName(),
    organization: Type.String({ minLength: 1, maxLength: 63, description: "Name of the Organization." }),
    namespace: Type.Optional(
      Text(
        63,
        "Existing namespace to use. It must have the annotation berth.dev/adopt-by-project. Default: a new namespace with the project's name.",
      ),
    ),
    caps: Type.Optional(SpendCapsSchema),
    members: Type.Optional(
      Type.Array(
        Type.Object({
          userId: UserIdSchema,
          role: StringEnum(ROLES, { description: "Role of the user in this project." }),
        }),
        {
          description: "Roles of users, in addition to their roles from the Organization.",
          maxItems: 1000,
          "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["userId"],
        },
      ),
    ),
    groups: Type.Optional(
      Type.Array(
        Type.Object({
          group: GroupIdSchema,
          role: StringEnum(ROLES, { description: "Role of every user in the group in this project." }),
        }),
        {
          description: "Roles of groups, in addition to their roles from the Organization.",
          maxItems: 100,
          "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["group"],
        },
      ),
    ),
  },
  {
    description: "Owner, members and spend caps of the project.",
    "x-kubernetes-validations": [immutable(["organization", "namespace"])],
  },
)
export type ProjectSpec = Static<typeof ProjectSpecSchema>

export const ProjectStatusSchema = Type.Object({
  observedGeneration: ObservedGeneration,
  conditions: Type.Optional(ConditionList),
  namespace: Type.Optional(Text(63, "Namespace of the project's objects.")),
  spending: Type.Optional(SpendingStatus()),
})
export type ProjectStatus = Static<typeof ProjectStatusSchema>

export type Project = KubeObject<ProjectSpec, ProjectStatus>
export type StoredProject = Stored<Project>

/** Finalizer that holds a Project until its jobs have ended and its namespace is deleted. */
export const PROJECT_FINALIZER = `${GROUP}/namespace`

/** Conditions of a Project. kstatus defines Reconciling and Stalled. */
export const ProjectCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  WithinCaps: WITHIN_CAPS,
} as const

/** Returns the namespace that a Project requests. `status.namespace` says if the Project has it. */
export function projectNamespace({ metadata, spec }: Pick<Project, "metadata" | "spec">): string {
  return spec.namespace ?? metadata.name
}

/** Project. Its name is a label in the host name of its URLs: a DNS label of at most 40 characters. */
export const PROJECT = defineKind({
  kind: "Project",
  plural: "projects",
  singular: "project",
  shortNames: ["bproj"],
  namespaced: false,
  description: "A namespace of jobs, cronjobs, connections and keys, with its own members and spend caps.",
  spec: ProjectSpecSchema,
  status: ProjectStatusSchema,
  conditions: Object.values(ProjectCondition),
  rules: [
    {
      rule: "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
      message: "metadata.name must be a DNS label of at most 40 characters",
    },
  ],
  printerColumns: [
    { name: "Display name", type: "string", jsonPath: ".spec.displayName" },
    { name: "Organization", type: "string", jsonPath: ".spec.organization" },
    { name: "Namespace", type: "string", jsonPath: ".status.namespace", priority: 1 },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    AGE_COLUMN,
  ],
})
