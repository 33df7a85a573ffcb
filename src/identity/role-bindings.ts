import type { ObjectMeta } from "../apis/meta.ts"
import { resourceOf } from "../kube/resource.ts"

export const RBAC_GROUP = "rbac.authorization.k8s.io"

/** Whom a binding gives its role to. */
export interface Subject {
  kind: string
  name: string
  namespace?: string
  apiGroup?: string
}

export interface RoleBinding {
  metadata: ObjectMeta
  roleRef: { apiGroup: string; kind: string; name: string }
  subjects?: Subject[]
}

export const ROLE_BINDINGS = resourceOf<RoleBinding>({
  group: RBAC_GROUP,
  version: "v1",
  kind: "RoleBinding",
  plural: "rolebindings",
  namespaced: true,
})

/** Whether a binding gives what is wanted, to whom it is wanted for, and to nobody else. */
export function givesTheSame(binding: RoleBinding, wanted: RoleBinding): boolean {
  return roleOf(binding) === roleOf(wanted) && subjectsOf(binding) === subjectsOf(wanted)
}

function roleOf({ roleRef: { apiGroup, kind, name } }: RoleBinding): string {
  return JSON.stringify([apiGroup, kind, name])
}

/** The API server writes the group of a User or Group where it was left out. */
function subjectsOf({ subjects = [] }: RoleBinding): string {
  return subjects
    .map(({ kind, name, namespace = "" }) => JSON.stringify([kind, namespace, name]))
    .sort()
    .join()
}
