import Type, { type Static } from "typebox"
import { ROLES } from "./apikey.ts"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { GroupIdSchema, UserIdSchema } from "./organization.ts"
import { ConditionList, Int, immutable, StringEnum, Text } from "./schema.ts"

/** What a project may spend at most; a job that would exceed it waits. */
const SpendCapsSchema = Type.Object(
  {
    maxVms: Type.Optional(Int({ description: "VMs at a time." })),
    maxHourlyUsd: Type.Optional(Type.Number({ minimum: 0, description: "US dollars an hour, over all VMs." })),
    maxMonthlyUsd: Type.Optional(Type.Number({ minimum: 0, description: "US dollars a calendar month (UTC)." })),
  },
  { description: "What the project may spend at most; a job that would exceed it waits. Default: no caps." },
)
export type SpendCaps = Static<typeof SpendCapsSchema>

export const ProjectSpecSchema = Type.Object(
  {
    displayName: Type.String({ minLength: 1, maxLength: 64, description: "Name for people; need not be unique." }),
    organization: Type.String({ minLength: 1, maxLength: 63, description: "Name of the Organization." }),
    namespace: Type.Optional(
      Text(
        63,
        "Namespace to use instead of one of the project's name; it must be annotated berth.dev/adopt-by-project.",
      ),
    ),
    caps: Type.Optional(SpendCapsSchema),
    members: Type.Optional(
      Type.Array(
        Type.Object({
          userId: UserIdSchema,
          role: StringEnum(ROLES, { description: "What the person may do in this project." }),
        }),
        {
          description: "Roles of people beyond those that the Organization gives them.",
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
          role: StringEnum(ROLES, { description: "What everybody in the group may do in this project." }),
        }),
        {
          description: "Roles of groups beyond those that the Organization gives them.",
          maxItems: 100,
          "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["group"],
        },
      ),
    ),
  },
  {
    description: "What a project is and who may use it.",
    "x-kubernetes-validations": immutable(["organization", "namespace"]),
  },
)
export type ProjectSpec = Static<typeof ProjectSpecSchema>

export const ProjectStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Int()),
  conditions: Type.Optional(ConditionList),
  namespace: Type.Optional(Text(63, "Where the project's objects live.")),
})
export type ProjectStatus = Static<typeof ProjectStatusSchema>

export type Project = KubeObject<ProjectSpec, ProjectStatus>
export type StoredProject = Stored<Project>

/** Keeps a Project until its jobs are over and its namespace is gone. */
export const PROJECT_FINALIZER = `${GROUP}/namespace`

/** Conditions of a Project; Reconciling and Stalled are kstatus' names. */
export const ProjectCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
} as const

/** The namespace that a Project asks for. Only `status.namespace` says that it has it. */
export function namespaceOf({ metadata, spec }: Pick<Project, "metadata" | "spec">): string {
  return spec.namespace ?? metadata.name
}

/** The Project's name is the host label of its URLs, hence a DNS label of at most 40 characters. */
export const PROJECT = defineKind({
  kind: "Project",
  plural: "projects",
  singular: "project",
  shortNames: ["bproj"],
  namespaced: false,
  description: "A namespace of jobs, cronjobs, connections and keys, with members and spend caps of its own.",
  spec: ProjectSpecSchema,
  status: ProjectStatusSchema,
  rules: [
    {
      rule: "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
      message: "metadata.name must be a DNS label of at most 40 characters",
    },
  ],
  printerColumns: [
    { name: "Name", type: "string", jsonPath: ".spec.displayName" },
    { name: "Organization", type: "string", jsonPath: ".spec.organization" },
    { name: "Namespace", type: "string", jsonPath: ".status.namespace" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    AGE_COLUMN,
  ],
})
