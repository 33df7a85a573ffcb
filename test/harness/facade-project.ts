import { randomBytes } from "node:crypto"
import { afterAll, beforeAll } from "vitest"
import { installBase } from "../../dev/base.ts"
import type { Role } from "../../src/core/apis/apikey.ts"
import type { Job, JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import type { ObjectRef } from "../../src/core/kube/resource.ts"
import { JOBS, PROJECTS } from "../../src/core/resources.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { makeKey, tendedNamespaces } from "./api-keys.ts"
import { confirmedProject } from "./confirmed-project.ts"
import { PATIENCE_MS } from "./eventually.ts"
import { type KeyController, startKeyController } from "./machine-users.ts"
import { ShownClient } from "./shown-writes.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/** A project with a namespace of its own and a key of each role. */
export interface ProjectFixture {
  readonly client: KubeClient
  readonly namespace: string
  /** Name of the project, and of its organization. */
  readonly project: string
  readonly organization: string
  readonly keys: Record<Role, string>
}

/**
 * Creates a project, and what every installation has, before a suite, and removes the project after it. An ApiKey
 * controller serves its keys meanwhile.
 */
export function projectFixture(prefix: string): ProjectFixture {
  const namespace = testNamespace(prefix)
  const project = `p-${randomBytes(4).toString("hex")}`
  const keys = { admin: "", developer: "", viewer: "" }
  const fixture = { client: new ShownClient(kubeConfig()), namespace, project, organization: `org-of-${project}`, keys }
  let keyController: KeyController
  beforeAll(async () => {
    await installBase(fixture.client, AbortSignal.timeout(PATIENCE_MS))
    await ensureSealingKeys(fixture.client, SYSTEM_NAMESPACE)
    await makeProject(fixture.client, project, namespace)
    keyController = await startKeyController(namespace)
    tendedNamespaces.add(namespace)
    for (const role of ["admin", "developer", "viewer"] as const)
      keys[role] = await makeKey(fixture.client, namespace, role)
  })
  afterAll(async () => {
    await ifFound(fixture.client.delete(PROJECTS, { name: project }))
    await keyController.stop()
    await fixture.client.close()
  })
  return fixture
}

export function makeProject(client: KubeClient, name: string, namespace: string): Promise<void> {
  return confirmedProject(client, { name, organization: `org-of-${name}`, namespace })
}

/** Returns the jobs that the API server has. */
export async function jobsOf(fixture: ProjectFixture): Promise<StoredJob[]> {
  return (await fixture.client.list(JOBS, { namespace: fixture.namespace })).items
}

/** Creates a Job like kubectl does. */
export async function applyJob(
  fixture: ProjectFixture,
  name: string,
  spec: Partial<Job["spec"]> = {},
  annotations: Record<string, string> = {},
): Promise<StoredJob> {
  const job: Job = {
    apiVersion: API_VERSION,
    kind: "Job",
    metadata: { name, namespace: fixture.namespace, annotations },
    spec: { image: "alpine", ...spec },
  }
  return fixture.client.create(JOBS, job as StoredJob)
}

/** Writes a Job's status like the job controller does. */
export function setStatus(fixture: ProjectFixture, name: string, status: JobStatus): Promise<StoredJob> {
  return fixture.client.patchStatus(JOBS, { namespace: fixture.namespace, name }, { merge: { status } })
}

/** Deletes a Job without its finalizer, which no operator removes here. */
export async function removeJob({ client }: Pick<ProjectFixture, "client">, job: ObjectRef): Promise<void> {
  const withoutFinalizers = { merge: { metadata: { finalizers: null } } }
  await ifFound(client.patch(JOBS, job, withoutFinalizers))
  await ifFound(client.delete(JOBS, job))
}
