import { expect } from "vitest"
import { POLICY_BINDINGS } from "../../dev/base.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { ABILITIES_POLICY, OPERATOR_LEASE } from "../../src/core/identity/installation.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { type Lease, leases } from "../../src/core/kube/lease.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { JOBS } from "../../src/core/resources.ts"
import { eventually } from "./eventually.ts"

/** Resource of the objects that put a policy into effect. */
export const BINDINGS = declareResource<ApiObject & { spec: object }>(POLICY_BINDINGS)

/**
 * Lets the policy of manifests/base ask the Lease of this system namespace about the jobs of one namespace, beside the one
 * of `berth-system`. The shared API server has no Lease there, so the policy rejects nothing in other suites. Creates the
 * Lease without a holder, and resolves when the API server rejects `after` by it. All stays until the control plane ends.
 */
export async function bindAbilities(
  client: KubeClient,
  { namespace, systemNamespace }: { namespace: string; systemNamespace: string },
): Promise<void> {
  const matchResources = { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": namespace } } }
  const paramRef = { name: OPERATOR_LEASE, namespace: systemNamespace, parameterNotFoundAction: "Allow" }
  await client.create(leases, { metadata: { name: OPERATOR_LEASE, namespace: systemNamespace }, spec: {} } as Lease)
  await client.create(BINDINGS, {
    metadata: { name: `${ABILITIES_POLICY}-${namespace}` },
    spec: { policyName: ABILITIES_POLICY, paramRef, matchResources, validationActions: ["Deny"] },
  })
  const dependent = {
    ...{ apiVersion: API_VERSION, kind: JOBS.kind, metadata: { name: "policy-probe", namespace } },
    spec: { image: "a", after: [{ job: "b" }] },
  }
  await eventually(() => expect(client.create(JOBS, dependent, { dryRun: true })).rejects.toThrow("No operator leads"))
}
