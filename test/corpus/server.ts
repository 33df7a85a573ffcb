import { expect } from "vitest"
import { applySpecLimits } from "../../dev/base.ts"
import { JOB } from "../../src/core/apis/job.ts"
import type { KindDefinition } from "../../src/core/apis/kind.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { errorsOfObject } from "../../src/core/apis/validate.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { KubeError } from "../../src/core/kube/errors.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { testNamespace } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { sharedClient } from "../harness/namespace.ts"

export interface AnyObject extends ApiObject {
  spec?: Record<string, unknown>
  status?: Record<string, unknown>
}

/** Parts of an object; `undefined` fields are omitted. */
export interface Parts {
  metadata?: object
  spec: Readonly<Record<string, unknown>>
  status?: Readonly<Record<string, unknown>> | undefined
}

/** Verdicts of the API server and the validator: the reason of a rejection, undefined if they accept. */
export interface Validators {
  client: KubeClient
  namespace: string
  object(kind: KindDefinition, parts: Parts): AnyObject
  /** Creates the object in a dry run. */
  server(kind: KindDefinition, parts: Parts): Promise<string | undefined>
  /** Writes the object's status in a dry run. An object of its name must exist. */
  serverStatus(kind: KindDefinition, parts: Parts): Promise<string | undefined>
  validator(kind: KindDefinition, parts: Parts): string | undefined
}

/** Installs the kinds and creates a namespace for the suite. Call it where beforeAll is allowed. */
export function validators(prefix: string): Validators {
  const namespace = testNamespace(prefix)
  const client = sharedClient()

  function object(kind: KindDefinition, parts: Parts): AnyObject {
    const place = kind.namespaced ? { namespace } : {}
    const metadata = { name: "corpus", ...place, ...parts.metadata }
    // Through JSON, like the request to the server: without undefined fields.
    return JSON.parse(JSON.stringify({ ...parts, apiVersion: API_VERSION, kind: kind.kind, metadata })) as AnyObject
  }

  return {
    client,
    namespace,
    object,
    server: (kind, parts) =>
      refusalOf(
        client.create(declareResource<AnyObject>(kind), object(kind, parts), {
          dryRun: true,
          fieldValidation: "Strict",
        }),
      ),
    serverStatus: (kind, parts) =>
      refusalOf(
        client.replaceStatus(declareResource<AnyObject>(kind), object(kind, parts), {
          dryRun: true,
          fieldValidation: "Strict",
        }),
      ),
    validator(kind, parts) {
      const faults = errorsOfObject(kind, object(kind, parts))
      return faults.length === 0 ? undefined : faults.map((fault) => fault.detail).join("; ")
    },
  }
}

/** Installs the policy that makes specs immutable, and waits until the API server uses it. */
export async function installSpecLimits(client: KubeClient, namespace: string): Promise<void> {
  await applySpecLimits(client)
  const jobs = declareResource<AnyObject>(JOB)
  const ref = { namespace, name: "spec-limits" }
  await client.create(jobs, { apiVersion: API_VERSION, kind: JOB.kind, metadata: ref, spec: { image: "a" } })
  const change = () => client.patch(jobs, ref, { merge: { spec: { image: "b" } } }, { dryRun: true })
  await eventually(async () => expect(await refusalOf(change())).toContain("image is immutable"))
  await client.delete(jobs, ref)
}

const REFUSALS = [400, 422]

/** Returns the API server's message when it rejects an object as invalid. Throws every other error. */
export async function refusalOf(write: Promise<unknown>): Promise<string | undefined> {
  try {
    await write
    return undefined
  } catch (error) {
    if (error instanceof KubeError && REFUSALS.includes(error.code)) return error.message
    throw error
  }
}
