import type { KubeClient } from "../../src/core/kube/client.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"

const AUTHORIZATION = { group: "authorization.k8s.io", version: "v1", namespaced: false } as const

interface AccessReview extends ApiObject {
  spec: { user: string; groups: readonly string[]; resourceAttributes: object }
  status?: { allowed: boolean }
}

const ACCESS_REVIEWS = declareResource<AccessReview>({
  ...AUTHORIZATION,
  ...{ kind: "SubjectAccessReview", plural: "subjectaccessreviews" },
})

interface Rule {
  verbs: string[]
  apiGroups?: string[]
  resources?: string[]
  resourceNames?: string[]
}

interface RulesReview extends ApiObject {
  spec: { namespace: string }
  status?: { resourceRules: Rule[] }
}

const RULES_REVIEWS = declareResource<RulesReview>({
  ...AUTHORIZATION,
  ...{ kind: "SelfSubjectRulesReview", plural: "selfsubjectrulesreviews" },
})

/** Person or program as the API server knows them after authentication. */
export interface Subject {
  user: string
  /** Default: those that the API server gives every user, and ServiceAccounts. */
  groups?: string[]
}

/** Action on objects of a kind. */
export interface Act {
  verb: string
  /** Plural of the kind, a dot and its group; no dot for the core group. A subresource follows after a slash. */
  resource: string
  /** Name of the only object. Default: all */
  name?: string
  /** Default: all namespaces, or none */
  namespace?: string
}

/**
 * Returns RBAC's answer, with the input that the API server itself uses. It is that of `kubectl auth can-i`, which takes
 * a hundred times as long.
 */
export async function isAllowed(client: KubeClient, subject: Subject, act: Act): Promise<boolean> {
  const { user, groups = groupsOf(user) } = subject
  const [kind = "", subresource = ""] = act.resource.split("/")
  const [plural = "", ...group] = kind.split(".")
  const { verb, name = "", namespace = "" } = act
  const resourceAttributes = { group: group.join("."), resource: plural, subresource, verb, name, namespace }
  const review = { metadata: { name: "" }, spec: { user, groups, resourceAttributes } }
  const { status } = await client.create<AccessReview>(ACCESS_REVIEWS, review)
  return status?.allowed ?? false
}

function groupsOf(user: string): string[] {
  const [, namespace] = /^system:serviceaccount:([^:]+):/.exec(user) ?? []
  const own = namespace === undefined ? [] : ["system:serviceaccounts", `system:serviceaccounts:${namespace}`]
  return [...own, "system:authenticated"]
}

/** Groups of the questions about one's own rights. Each user may ask them. */
const OF_EVERYBODY = ["authorization.k8s.io", "authentication.k8s.io"]

/**
 * Returns all that RBAC allows a user in a namespace: the verbs by resource, in the form of `Act.resource`. Rights for
 * single objects are under `RESOURCE NAME`.
 */
export async function rightsOf(
  client: KubeClient,
  subject: Subject,
  namespace: string,
): Promise<Record<string, string[]>> {
  const review = { metadata: { name: "" }, spec: { namespace } }
  const { status } = await client.create<RulesReview>(RULES_REVIEWS, review, { as: subject })
  const rights = new Map<string, Set<string>>()
  for (const rule of status?.resourceRules ?? [])
    for (const key of keysOf(rule)) rights.set(key, new Set([...(rights.get(key) ?? []), ...rule.verbs]))
  return Object.fromEntries([...rights].map(([key, verbs]) => [key, [...verbs].sort()]))
}

/** Returns the resources of a rule, one for each of its names. */
function keysOf({ apiGroups = [], resources = [], resourceNames = [""] }: Rule): string[] {
  return apiGroups
    .filter((group) => !OF_EVERYBODY.includes(group))
    .flatMap((group) => resources.map((resource) => inGroup(resource, group)))
    .flatMap((resource) => resourceNames.map((name) => [resource, name].filter(Boolean).join(" ")))
}

/** Returns a resource of a rule in the form of `Act.resource`. */
function inGroup(resource: string, group: string): string {
  const [plural = "", subresource] = resource.split("/")
  return [[plural, group].filter(Boolean).join("."), subresource].filter(Boolean).join("/")
}
