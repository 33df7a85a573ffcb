import type { KubeClient } from "../../src/core/kube/client.ts"
import { PROJECTS } from "../../src/core/resources.ts"

/** Creates a project with a confirmed namespace, for suites without a project controller. */
export async function confirmedProject(
  client: KubeClient,
  { name, organization, namespace }: { name: string; organization: string; namespace: string },
): Promise<void> {
  const metadata = { name }
  await client.apply(PROJECTS, { metadata, spec: { displayName: name, organization, namespace } })
  await client.applyStatus(PROJECTS, { metadata, status: { namespace } })
}
