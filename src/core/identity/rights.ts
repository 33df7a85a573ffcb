import type { Role } from "../apis/apikey.ts"
import { GROUP } from "../apis/meta.ts"
import { type ApiObject, declareResource } from "../kube/resource.ts"
import type { CallerClient } from "./principal.ts"

export interface SelfSubjectAccessReview extends ApiObject {
  spec: { resourceAttributes: { namespace: string; group: string; resource: string; verb: string } }
  status?: { allowed: boolean }
}

const SELF_SUBJECT_ACCESS_REVIEWS = declareResource<SelfSubjectAccessReview>({
  group: "authorization.k8s.io",
  version: "v1",
  kind: "SelfSubjectAccessReview",
  plural: "selfsubjectaccessreviews",
  namespaced: false,
})

const TIMEOUT_SECONDS = 2

/** A right that each role has, and no lower one (manifests/base/user-roles.yaml). */
const RIGHT_OF: Readonly<Record<Role, { resource: string; verb: string }>> = {
  viewer: { resource: "jobs", verb: "list" },
  developer: { resource: "jobs", verb: "create" },
  admin: { resource: "apikeys", verb: "create" },
}

/** Returns true if the API server gives a user the rights of a role in a namespace. @param client calls as that user */
export async function hasRights(role: Role, namespace: string, client: Pick<CallerClient, "create">): Promise<boolean> {
  const review = {
    metadata: { name: "" },
    spec: { resourceAttributes: { namespace, group: GROUP, ...RIGHT_OF[role] } },
  }
  const options = { timeoutSeconds: TIMEOUT_SECONDS }
  const { status } = await client.create<SelfSubjectAccessReview>(SELF_SUBJECT_ACCESS_REVIEWS, review, options)
  return status?.allowed === true
}
