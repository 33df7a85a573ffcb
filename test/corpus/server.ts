import { beforeAll } from "vitest"
import { installKinds } from "../../dev/install.ts"
import type { KindDefinition } from "../../src/apis/kind.ts"
import { API_VERSION } from "../../src/apis/meta.ts"
import { faultsOfObject } from "../../src/apis/validate.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { KubeError } from "../../src/kube/errors.ts"
import { type ApiObject, resourceOf } from "../../src/kube/resource.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"

export interface AnyObject extends ApiObject {
  spec?: Record<string, unknown>
  status?: Record<string, unknown>
}

/** What an object is made of; `undefined` fields are left out. */
export interface Parts {
  metadata?: object
  spec: Readonly<Record<string, unknown>>
  status?: Readonly<Record<string, unknown>> | undefined
}

/** How the API server and the validator judge objects: the reason of a refusal, undefined when they accept. */
export interface Judges {
  client: KubeClient
  namespace: string
  object(kind: KindDefinition, parts: Parts): AnyObject
  /** A dry run of creating it. */
  server(kind: KindDefinition, parts: Parts): Promise<string | undefined>
  /** A dry run of writing its status; an object of its name must exist. */
  serverStatus(kind: KindDefinition, parts: Parts): Promise<string | undefined>
  validator(kind: KindDefinition, parts: Parts): string | undefined
}

/** Installs the kinds and gives the suite a namespace. Call it where beforeAll may be called. */
export function judges(prefix: string): Judges {
  const namespace = testNamespace(prefix)
  const client = new KubeClient(kubeConfig())
  beforeAll(() => installKinds(client, AbortSignal.timeout(60_000)))

  function object(kind: KindDefinition, parts: Parts): AnyObject {
    const place = kind.namespaced ? { namespace } : {}
    const metadata = { name: "corpus", ...place, ...parts.metadata }
    // Through JSON, as it goes to the server: without undefined fields.
    return JSON.parse(JSON.stringify({ ...parts, apiVersion: API_VERSION, kind: kind.kind, metadata })) as AnyObject
  }

  return {
    client,
    namespace,
    object,
    server: (kind, parts) =>
      refusalOf(
        client.create(resourceOf<AnyObject>(kind), object(kind, parts), { dryRun: true, fieldValidation: "Strict" }),
      ),
    serverStatus: (kind, parts) =>
      refusalOf(
        client.replaceStatus(resourceOf<AnyObject>(kind), object(kind, parts), {
          dryRun: true,
          fieldValidation: "Strict",
        }),
      ),
    validator(kind, parts) {
      const faults = faultsOfObject(kind, object(kind, parts))
      return faults.length === 0 ? undefined : faults.map((fault) => fault.detail).join("; ")
    },
  }
}

const REFUSALS = [400, 422]

/** The API server's words when it refused an object as invalid. Throws what failed for another reason. */
export async function refusalOf(write: Promise<unknown>): Promise<string | undefined> {
  try {
    await write
    return undefined
  } catch (error) {
    if (error instanceof KubeError && REFUSALS.includes(error.code)) return error.message
    throw error
  }
}
