import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import { PROJECT_FINALIZER, type StoredProject } from "../../src/core/apis/project.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { kubeConfig } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { clientOf } from "../harness/machine-users.ts"
import { type ProjectControllers, startProjectControllersBy } from "../harness/project-controllers.ts"

/** Tests of the controllers of an operator with --watch-namespace. Other suites have operators of all namespaces. */
const run = randomBytes(4).toString("hex")
const [SERVED, OTHER, FORMER] = [`served-${run}`, `other-${run}`, `former-${run}`]
const admin = new KubeClient(kubeConfig())
/** Names of the objects that the operator has written. */
const written = new Set<string>()
let controllers: ProjectControllers

beforeAll(async () => {
  await installBase(admin, AbortSignal.timeout(60_000))
  const client = recording(await clientOf("berth-operator"))
  controllers = await startProjectControllersBy(client, { labelSelector: `run=${run}`, watchNamespace: SERVED })
}, 90_000)
afterAll(async () => {
  await controllers.stop()
  for (const name of [SERVED, OTHER]) await admin.delete(PROJECTS, { name })
  for (const name of [SERVED, OTHER]) await admin.delete(ORGANIZATIONS, { name: `org-of-${name}` })
  await admin.close()
})

/** Number of objects that other operators may release first, all of them. */
const MOST_RACES = 20

const WRITES = ["create", "replace", "patch", "patchStatus", "delete"]

/** Returns the client, which records the names of the objects that it writes. */
function recording(client: KubeClient): KubeClient {
  return new Proxy(client, {
    get: (target, property) => {
      const method = Reflect.get(target, property, target) as (...args: unknown[]) => unknown
      return (...args: unknown[]) => {
        if (WRITES.includes(String(property))) written.add(nameOf(args[1]))
        return method.apply(target, args)
      }
    },
  })
}

function nameOf(object: unknown): string {
  const { name, metadata } = object as { name?: string; metadata?: { name: string } }
  return metadata?.name ?? name ?? ""
}

/** Creates a project and its organization. */
async function make(name: string, finalizers: string[] = []): Promise<void> {
  const organization = `org-of-${name}`
  const labels = { run }
  const ofIts = { metadata: { name: organization, labels }, spec: { displayName: "Acme" } }
  await admin.create<StoredOrganization>(ORGANIZATIONS, ofIts as unknown as StoredOrganization)
  const project = { metadata: { name, labels, finalizers }, spec: { displayName: "Trains", organization } }
  await admin.create<StoredProject>(PROJECTS, project as unknown as StoredProject)
}

it("an operator of one namespace handles its project and that project's organization, and no others", async () => {
  await make(OTHER)
  await make(SERVED)
  await eventually(async () => {
    expect((await admin.get(PROJECTS, { name: SERVED })).status?.namespace).toBe(SERVED)
    const { status } = await admin.get(ORGANIZATIONS, { name: `org-of-${SERVED}` })
    expect(findCondition(status?.conditions, "Ready")?.status).toBe("True")
  })
  await eventually(() => expect(written).toContain(`org-of-${SERVED}`))
  expect(written).not.toContain(OTHER)
  expect(written).not.toContain(`org-of-${OTHER}`)
})

it("an operator of one namespace lets deleted objects go that another handled", async () => {
  // Operators of other suites at this API server release such objects, too. One that this operator has released counts.
  for (let tries = 1; tries <= MOST_RACES && !written.has(FORMER); tries++) {
    await make(FORMER, [PROJECT_FINALIZER])
    await admin.delete(PROJECTS, { name: FORMER })
    await eventually(() => expect(admin.get(PROJECTS, { name: FORMER })).rejects.toMatchObject({ code: 404 }))
    await admin.delete(ORGANIZATIONS, { name: `org-of-${FORMER}` })
    await eventually(() =>
      expect(admin.get(ORGANIZATIONS, { name: `org-of-${FORMER}` })).rejects.toMatchObject({ code: 404 }),
    )
  }
  expect(written).toContain(FORMER)
})
