import { execFile } from "node:child_process"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { dump, loadAll } from "js-yaml"
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import type { ApiObject } from "../../src/core/kube/resource.ts"
import { CHART, helm } from "../chart/helm.ts"
import { startPrivateControlPlane } from "../control-plane.ts"

const OVERLAYS = join(import.meta.dirname, "..", "..", "manifests", "overlays")

/** Overlays with programs of their own, rendered from the chart. */
const RENDERED = ["default", "high-availability"]
/** Overlays in an order in which a cluster can move from one to the next: a Deployment can't turn to Recreate. */
const ALL = ["default", "single-namespace", "high-availability"]

/** Templates of the objects that are neither in manifests/base nor a kind. */
const TEMPLATES = ["operator", "facade", "monitoring"].flatMap((name) => ["--show-only", `templates/${name}.yaml`])

const HEADER = "# The chart's own, made by `npm test -- test/manifests/overlays -u`; do not edit\n"

/** Labels and annotations that only Helm's objects have. */
const HELMS = ["helm.sh/chart", "app.kubernetes.io/managed-by", "helm.sh/resource-policy"]

interface Container {
  name: string
  env: { name: string }[]
}
type Program = ApiObject & { spec: { template?: { spec: { containers: Container[] } } } }

describe.each(RENDERED)("the programs of the overlay %s", (overlay) => {
  const folder = join(OVERLAYS, overlay)

  it("are the chart's, with their settings from the ConfigMap", async () => {
    const settings = await readFile(join(folder, "settings.env"), "utf8")
    const names = settings.split("\n").flatMap((line) => /^(\w+)=./.exec(line)?.[1] ?? [])
    const args = ["template", "berth", CHART, "--namespace", "berth-system", "--kube-version", "1.35.0", ...TEMPLATES]
    const text = await helm([...args, "--values", join(folder, "values.yaml")])
    const programs = (loadAll(text) as (Program | null)[]).filter((object) => object !== null)
    for (const { spec } of programs) setBy(names, spec.template?.spec.containers ?? [])
    const documents = programs.map((object) => dump(withoutHelm(object), { noRefs: true, lineWidth: 120 }))
    await expect(HEADER + documents.join("---\n")).toMatchFileSnapshot(join(folder, "programs.yaml"))
  })
})

it("limits Secrets to one namespace as the chart does", async () => {
  const args = ["template", "berth", CHART, "--namespace", "berth-system", "--kube-version", "1.35.0"]
  const values = ["--set", "baseDomain=berth.example.com,watchNamespace=default", "--show-only", "templates/base.yaml"]
  const objects = loadAll(await helm([...args, ...values])) as (ApiObject | null)[]
  const bindings = objects.filter(
    (object) => object?.kind?.endsWith("Binding") && /-secrets$/.test(object.metadata.name),
  )
  for (const binding of bindings) delete binding?.metadata.labels
  const overlay = await readFile(join(OVERLAYS, "single-namespace", "secrets-rbac.yaml"), "utf8")
  expect(bindings).toHaveLength(2)
  expect(loadAll(overlay)).toEqual(expect.arrayContaining(bindings))
})

/** Removes the settings from the containers' own variables, which would override the ConfigMap's. */
function setBy(names: readonly string[], containers: Container[]): void {
  for (const container of containers) {
    container.env = container.env.filter(({ name }) => !names.includes(name))
    Object.assign(container, { envFrom: [{ configMapRef: { name: "berth-settings" } }] })
  }
}

function withoutHelm<Value>(value: Value): Value {
  if (Array.isArray(value)) return value.map(withoutHelm) as Value
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value).filter(([key]) => !HELMS.includes(key))
  return Object.fromEntries(entries.map(([key, field]) => [key, withoutHelm(field)])) as Value
}

describe("an overlay", () => {
  let controlPlane: ControlPlane
  const kubectl = async (...args: string[]): Promise<string> =>
    (await promisify(execFile)(inject("kubectlPath"), ["--kubeconfig", controlPlane.kubeconfigPath, ...args])).stdout

  beforeAll(async () => {
    controlPlane = await startPrivateControlPlane()
  })
  afterAll(() => controlPlane?.stop())

  it("is one of the overlays that this file applies", async () => {
    expect((await readdir(OVERLAYS)).sort()).toEqual([...ALL].sort())
  })

  it.each(ALL)(
    "%s is applied, and a second time without a change",
    async (overlay) => {
      const folder = join(OVERLAYS, overlay)
      await kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
      const before = await stored(folder)
      await kubectl("apply", "--server-side", "-k", folder)
      expect(await stored(folder)).toEqual(before)
      // Its exit code is 1 if an object differs.
      expect(await kubectl("diff", "--server-side", "-k", folder)).toBe("")
      expect(before.map(([name]) => name)).toContainEqual(
        expect.stringMatching(/^ConfigMap berth-system.berth-settings-/),
      )
    },
    180_000,
  )

  it("has one façade in place of several after their Deployment was deleted, as docs/install.md says", async () => {
    const apply = () => kubectl("apply", "--server-side", "--force-conflicts", "-k", join(OVERLAYS, "default"))
    await expect(apply()).rejects.toThrow(/Deployment .*berth-facade.* is invalid.*rollingUpdate/s)
    await kubectl("delete", "deployment", "berth-facade", "-n", "berth-system")
    await apply()
  })

  /** Returns the generation of each object, or the time and content of this tool's last change if it has none. */
  async function stored(folder: string): Promise<[name: string, version: unknown][]> {
    const list = await kubectl("get", "-k", folder, "-o", "json", "--show-managed-fields")
    const { items } = JSON.parse(list) as { items: Applied[] }
    return items.map(({ kind, metadata: { namespace = "", name, generation, managedFields } }) => {
      return [`${kind} ${namespace}/${name}`, generation ?? managedFields.find(({ manager }) => manager === "kubectl")]
    })
  }
})

interface Applied {
  kind: string
  metadata: { namespace?: string; name: string; generation?: number; managedFields: { manager: string }[] }
}
