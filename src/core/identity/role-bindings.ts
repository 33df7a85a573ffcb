import type { ObjectMeta } from "../apis/meta.ts"
import { declareResource } from "../kube/resource.ts"

export const RBAC_GROUP = "rbac.authorization.k8s.io"

/** Subject that gets a binding's role. */
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

export const ROLE_BINDINGS = declareResource<RoleBinding>({
  group: RBAC_GROUP,
  version: "v1",
  kind: "RoleBinding",
  plural: "rolebindings",
  namespaced: true,
})

/** Returns true if a binding has the wanted role and exactly the wanted subjects. */
export function givesTheSame(binding: RoleBinding, wanted: RoleBinding): boolean {
  return roleOf(binding) === roleOf(wanted) && subjectsOf(binding) === subjectsOf(wanted)
}

function roleOf({ roleRef: { apiGroup, kind, name } }: RoleBinding): string {
  return JSON.stringify([apiGroup, kind, name])
}

/** Returns the subjects in a comparable form. It has no apiGroup, because the API server adds it to a User or Group. */
function subjectsOf({ subjects = [] }: RoleBinding): string {
  return subjects
    .map(({ kind, name, namespace = "" }) => JSON.stringify([kind, namespace, name]))
    .sort()
    .join()
}
