import { PROJECTS } from "../src/identity/projects.ts"
import type { KubeClient } from "../src/kube/client.ts"

/** Makes a project that has a namespace as if its controller had confirmed it, for suites in which there is none. */
export async function confirmedProject(
  client: KubeClient,
  { name, organization, namespace }: { name: string; organization: string; namespace: string },
): Promise<void> {
  const metadata = { name }
  await client.apply(PROJECTS, { metadata, spec: { displayName: name, organization, namespace } })
  await client.applyStatus(PROJECTS, { metadata, status: { namespace } })
}
