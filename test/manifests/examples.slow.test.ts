import { execFile } from "node:child_process"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { loadAll } from "js-yaml"
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest"
import { installKinds } from "../../dev/install.ts"
import { connect } from "../../src/connect.ts"
import { CONNECTION_TYPES, type ConnectionSpec } from "../../src/core/apis/connection.ts"
import { formsOf } from "../../src/core/apis/credentials.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import type { ApiObject } from "../../src/core/kube/resource.ts"
import { CHART, helm } from "../chart/helm.ts"
import { kubeconfigPath, kubectl, testNamespace } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"

const MANIFESTS = join(import.meta.dirname, "..", "..", "manifests")
const TENANT = join(MANIFESTS, "samples", "tenant")

/** Groups that the API server here knows. The kinds of Argo CD, Flux and External Secrets are unknown to it. */
const KNOWN = [API_VERSION, "v1"]

interface ExternalSecret extends ApiObject {
  spec: { target: { template: { type: string } }; data: { secretKey: string }[] }
}

describe("examples", () => {
  const namespace = testNamespace("examples")
  let client: KubeClient

  beforeAll(async () => {
    client = connect({ kubeconfig: kubeconfigPath() })
    await installKinds(client, AbortSignal.timeout(60_000))
    // Kubectl discovers new kinds a moment after they are served.
    const kinds = KINDS.map(({ plural }) => `${plural}.berth.dev`).join(",")
    await eventually(() => kubectl(["get", kinds, "-n", namespace]))
  })
  afterAll(() => client.close())

  /** Applies objects in the suite's own namespace: the namespaces that they name don't exist. */
  async function tried(objects: readonly ApiObject[]): Promise<void> {
    const items = objects
      .filter(({ apiVersion = "" }) => KNOWN.includes(apiVersion))
      .map((object) => ({
        ...object,
        metadata: { ...object.metadata, ...(object.metadata.namespace !== undefined && { namespace }) },
      }))
    expect(items).not.toEqual([])
    const list = JSON.stringify({ apiVersion: "v1", kind: "List", items })
    await kubectl(["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"], list)
  }

  it("examples of a team are accepted by the API server and cover each kind", async () => {
    const files = await Promise.all((await readdir(TENANT)).map((file) => readFile(join(TENANT, file), "utf8")))
    const objects = files.flatMap((text) => loadAll(text) as ApiObject[])
    await tried(objects)
    const kinds = new Set(objects.filter(({ apiVersion }) => apiVersion === API_VERSION).map(({ kind }) => kind))
    // Only Berth creates Launches and Statements.
    expect([...kinds].sort()).toEqual(
      KINDS.map(({ kind }) => kind)
        .filter((kind) => kind !== "Launch" && kind !== "Statement")
        .sort(),
    )
  })

  it("examples of connections have a Secret each, with exactly the fields of their type", async () => {
    const objects = loadAll(await readFile(join(TENANT, "connections.yaml"), "utf8")) as ApiObject[]
    const connections = objects.filter(({ kind }) => kind === "Connection") as (ApiObject & { spec: ConnectionSpec })[]
    expect(connections.map(({ spec }) => spec.type).sort()).toEqual([...CONNECTION_TYPES].sort())
    for (const { spec } of connections) {
      const secret = objects.find(
        ({ kind, metadata }) => kind === "Secret" && metadata.name === spec.credentialsSecretRef?.name,
      )
      const fields = Object.keys(formsOf(spec.type)[0].properties).sort()
      expect(secret).toMatchObject({ type: "berth.dev/connection" })
      expect(Object.keys((secret as unknown as { stringData: object }).stringData).sort()).toEqual(fields)
    }
  })

  it("an example of External Secrets provides exactly the fields of its connection's type", async () => {
    const objects = loadAll(await readFile(join(MANIFESTS, "gitops", "acme", "jobs", "connection.yaml"), "utf8"))
    const [external, connection] = objects as [ExternalSecret, ApiObject & { spec: ConnectionSpec }]
    expect(external.spec.target.template.type).toBe("berth.dev/connection")
    expect(connection.spec.credentialsSecretRef?.name).toBe(external.metadata.name)
    const fields = Object.keys(formsOf(connection.spec.type)[0].properties)
    expect(external.spec.data.map(({ secretKey }) => secretKey)).toEqual(fields)
  })

  it("an example of Flux installs the release of the documents' commands", async () => {
    const objects = loadAll(await readFile(join(MANIFESTS, "gitops", "flux", "berth.yaml"), "utf8")) as ApiObject[]
    const place = { releaseName: "berth", targetNamespace: "berth-system", storageNamespace: "berth-system" }
    expect(objects.find(({ kind }) => kind === "HelmRelease")).toMatchObject({ spec: place })
  })

  it("examples of values for EKS match the chart's schema", async () => {
    const text = await readFile(join(MANIFESTS, "..", "docs", "install.md"), "utf8")
    const [, values = ""] = /^## On EKS\n[\s\S]*?^```yaml\n([\s\S]*?)^```$/m.exec(text) ?? []
    const folder = await mkdtemp(join(tmpdir(), "berth-eks-"))
    await writeFile(join(folder, "values.yaml"), values)
    const args = ["template", "berth", CHART, "--kube-version", "1.35.0", "--values", join(folder, "values.yaml")]
    const objects = loadAll(await helm(args).finally(() => rm(folder, { recursive: true }))) as (ApiObject | null)[]
    expect(objects.find((object) => object?.kind === "Ingress")).toMatchObject({ spec: { ingressClassName: "alb" } })
  })

  it.each(["acme", "argocd", "flux"])(
    "examples of GitOps, %s, are complete, and the API server accepts Berth's objects",
    async (folder) => {
      const { stdout } = await promisify(execFile)(inject("kubectlPath"), [
        "kustomize",
        join(MANIFESTS, "gitops", folder),
      ])
      const objects = loadAll(stdout) as ApiObject[]
      if (folder === "acme") await tried(objects)
      expect(objects.length).toBeGreaterThan(2)
    },
  )
})
