import { execFile } from "node:child_process"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { load, loadAll } from "js-yaml"
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { connect } from "../../src/connect.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { isAllowed } from "../harness/rights.ts"

const run = promisify(execFile)
const MANIFESTS = join(import.meta.dirname, "..", "..", "manifests")

/** Prints each object's name and generation. */
const VERSIONS = "jsonpath={range .items[*]}{.metadata.name}={.metadata.generation} {end}"

interface Installed {
  metadata: { name: string; namespace?: string; labels: object }
  kind: string
  spec?: object
  rules?: object
  subjects?: object
  roleRef?: object
}

describe("manifests", () => {
  let controlPlane: ControlPlane
  let folder: string
  const kubectl = async (...args: string[]): Promise<string> =>
    (await run(inject("kubectlPath"), ["--kubeconfig", controlPlane.kubeconfigPath, ...args])).stdout

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-manifests-"))
    controlPlane = await startPrivateControlPlane()
    await kubectl("apply", "--server-side", "-k", join(MANIFESTS, "base"))
    await kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=100s")
  })
  afterAll(async () => {
    await controlPlane?.stop()
    await rm(folder, { recursive: true })
  })

  it("install every kind, and change nothing when they are applied again", async () => {
    const names = [
      ...["apikeys", "connections", "cronjobs", "jobarrays", "jobs"],
      ...["launches", "machines", "organizations", "projects", "statements", "webhooks"],
    ]
    // The API server serves a new kind a moment after it has established it.
    await eventually(async () => {
      const kinds = await kubectl("api-resources", "--api-group=berth.dev", "--no-headers", "-o", "name")
      expect(kinds.trim().split("\n").sort()).toEqual(names.map((name) => `${name}.berth.dev`))
    })
    const versions = () =>
      kubectl(
        "get",
        "crd,clusterrole,ns,validatingadmissionpolicy",
        "-l",
        "app.kubernetes.io/part-of=berth",
        "-o",
        VERSIONS,
      )
    const before = await versions()
    await kubectl("apply", "--server-side", "-k", join(MANIFESTS, "base"))
    expect(await versions()).toBe(before)
  })

  it("install the same objects as a stack on one machine", async () => {
    const kinds = "crd,ns,sa,clusterrole,clusterrolebinding,role,rolebinding,validatingadmissionpolicy"
    const installed = async (): Promise<unknown[]> => {
      const list = await kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/part-of=berth", "-o", "json")
      const { items } = JSON.parse(list) as { items: Installed[] }
      return items.map(({ metadata: { name, namespace, labels }, kind, spec, rules, subjects, roleRef }) => {
        return { name, namespace, labels, kind, spec, rules, subjects, roleRef }
      })
    }
    const before = await installed()
    expect(before.length).toBeGreaterThan(15)
    const client = connect({ kubeconfig: controlPlane.kubeconfigPath })
    await installBase(client, AbortSignal.timeout(100_000))
    await client.close()
    expect(await installed()).toEqual(before)
  })

  it("have samples that the API server accepts, one by one and together", async () => {
    const folder = join(MANIFESTS, "samples")
    const files = (await readdir(folder)).filter((file) => file.endsWith(".yaml"))
    const applied = await kubectl("apply", "--server-side", "-f", folder)
    expect(applied.trim().split("\n")).toHaveLength(files.length)
    for (const file of files) await kubectl("apply", "--server-side", "--dry-run=server", "-f", join(folder, file))
  })

  it("have a REST sample that is one YAML document with a name and an image", async () => {
    const body = load(await readFile(join(MANIFESTS, "samples", "rest", "submit.yaml"), "utf8"))
    expect(body).toMatchObject({ name: "submitted", image: expect.any(String) })
  })

  it("have the domain of a release only in the settings, where docs/install.md changes it", async () => {
    const made = await kubectl("kustomize", join(MANIFESTS, "overlays", "default"))
    const text = await readFile(join(MANIFESTS, "..", "docs", "install.md"), "utf8")
    const [, expression = ""] = /^sed '([^']+)' install.yaml/m.exec(text) ?? []
    const changing = run("sed", [expression])
    changing.child.stdin?.end(made)
    const changed = loadAll((await changing).stdout) as (Installed & { data?: Record<string, string> })[]
    const settings = changed.find(({ kind, data }) => kind === "ConfigMap" && data?.["BERTH_BASE_DOMAIN"] !== undefined)
    expect(settings?.data).toMatchObject({
      BERTH_BASE_DOMAIN: "jobs.example.org",
      BERTH_GATEWAY_URL: "https://jobs.example.org",
    })
    expect(JSON.stringify(changed)).not.toContain("berth.example.com")
  })

  describe("roles of the manifests", () => {
    const operator = "system:serviceaccount:berth-system:berth-operator"
    const facade = "system:serviceaccount:berth-system:berth-facade"
    const system = "berth-system"
    const identities = "berth-identities"
    const elsewhere = "default"
    const everywhere = ""
    let client: KubeClient
    beforeAll(() => {
      client = connect({ kubeconfig: controlPlane.kubeconfigPath })
    })
    afterAll(() => client.close())
    /** @param resource may end with a space and the name of the only object */
    const can = (user: string, verb: string, resource: string, namespace: string): Promise<boolean> => {
      const [kind = "", name] = resource.split(" ")
      return isAllowed(client, { user }, { verb, resource: kind, namespace, ...(name && { name }) })
    }

    it.each<[string, string, string, string, boolean]>([
      [operator, "watch", "jobs.berth.dev", everywhere, true],
      [operator, "update", "jobs.berth.dev/status", elsewhere, true],
      [operator, "patch", "jobs.berth.dev/status", elsewhere, false],
      [operator, "create", "jobs.berth.dev", elsewhere, true],
      [operator, "update", "jobs.berth.dev", elsewhere, false],
      [operator, "patch", "cronjobs.berth.dev", elsewhere, true],
      [operator, "update", "cronjobs.berth.dev/status", elsewhere, true],
      [operator, "create", "cronjobs.berth.dev", elsewhere, false],
      [operator, "delete", "cronjobs.berth.dev", elsewhere, false],
      [operator, "patch", "jobarrays.berth.dev", elsewhere, true],
      [operator, "delete", "jobarrays.berth.dev", elsewhere, true],
      [operator, "update", "jobarrays.berth.dev/status", elsewhere, true],
      [operator, "create", "jobarrays.berth.dev", elsewhere, false],
      [operator, "patch", "webhooks.berth.dev", elsewhere, true],
      [operator, "update", "webhooks.berth.dev/status", elsewhere, true],
      [operator, "create", "webhooks.berth.dev", elsewhere, false],
      [operator, "delete", "webhooks.berth.dev", elsewhere, false],
      [operator, "create", "launches.berth.dev", system, true],
      [operator, "create", "launches.berth.dev", elsewhere, false],
      [operator, "update", "statements.berth.dev/status", system, true],
      [operator, "create", "statements.berth.dev", elsewhere, false],
      [operator, "update", "leases.coordination.k8s.io", system, true],
      [operator, "get", "secrets berth-installation", system, true],
      [operator, "get", "secrets berth-sealing-keys", system, true],
      [operator, "patch", "secrets berth-sealing-keys", system, true],
      [operator, "patch", "secrets berth-installation", system, false],
      [operator, "get", "secrets another", system, false],
      [operator, "get", "secrets", elsewhere, false],
      [operator, "watch", "secrets", elsewhere, true],
      [operator, "patch", "secrets", elsewhere, false],
      [operator, "patch", "connections.berth.dev", elsewhere, true],
      [operator, "create", "connections.berth.dev", elsewhere, false],
      [operator, "delete", "connections.berth.dev", elsewhere, false],
      [facade, "patch", "connections.berth.dev", elsewhere, false],
      [operator, "create", "events", elsewhere, true],
      [facade, "create", "events", elsewhere, true],
      [facade, "list", "events", elsewhere, false],
      [operator, "patch", "apikeys.berth.dev", elsewhere, true],
      [operator, "create", "apikeys.berth.dev", elsewhere, false],
      [operator, "grant-admin", "apikeys.berth.dev", elsewhere, false],
      [operator, "create", "rolebindings.rbac.authorization.k8s.io", elsewhere, true],
      [operator, "bind", "clusterroles.rbac.authorization.k8s.io berth-admin", elsewhere, true],
      [operator, "bind", "clusterroles.rbac.authorization.k8s.io cluster-admin", elsewhere, false],
      [operator, "create", "serviceaccounts", identities, true],
      [operator, "create", "serviceaccounts", elsewhere, false],
      [operator, "impersonate", "serviceaccounts", identities, false],
      [facade, "watch", "apikeys.berth.dev", everywhere, true],
      [facade, "create", "jobs.berth.dev", elsewhere, false],
      [facade, "patch", "jobs.berth.dev", elsewhere, false],
      [facade, "create", "apikeys.berth.dev", elsewhere, false],
      [facade, "patch", "jobs.berth.dev/status", elsewhere, false],
      [facade, "delete", "jobs.berth.dev", elsewhere, false],
      [facade, "patch", "launches.berth.dev/status", system, true],
      [facade, "patch", "launches.berth.dev", system, false],
      [facade, "list", "statements.berth.dev", system, true],
      [facade, "create", "statements.berth.dev", system, false],
      [facade, "watch", "webhooks.berth.dev", everywhere, true],
      [facade, "patch", "webhooks.berth.dev", elsewhere, false],
      [facade, "get", "secrets", elsewhere, true],
      [facade, "list", "secrets", elsewhere, false],
      [facade, "impersonate", "serviceaccounts", identities, true],
      [facade, "impersonate", "serviceaccounts", elsewhere, false],
      [facade, "impersonate", "serviceaccounts", system, false],
      [facade, "impersonate", "users", everywhere, false],
      [facade, "impersonate", "groups", everywhere, false],
      [facade, "create", "serviceaccounts/token", identities, false],
    ])("%s %s %s %s: %s", async (who, verb, resource, where, allowed) => {
      expect(await can(who, verb, resource, where)).toBe(allowed)
    })

    it("let only the operator change Berth's own objects, and let only machine users and people get roles", async () => {
      const attempt = (...args: string[]) => kubectl(...args, `--as=${operator}`, "--dry-run=server")
      await kubectl("create", "namespace", "somebodys")
      await kubectl("create", "rolebinding", "somebodys", "--clusterrole=view", "--user=eve", "-n", elsewhere)
      await eventually(() => expect(attempt("delete", "namespace", "somebodys")).rejects.toThrow(/touches only what/))
      await expect(attempt("delete", "rolebinding", "somebodys", "-n", elsewhere)).rejects.toThrow(/touches only what/)
      await expect(attempt("create", "namespace", "more")).rejects.toThrow(/touches only what/)
      const bind = async (subject: object): Promise<string> => {
        const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "berth-admin" }
        const metadata = { name: "b", namespace: "default", labels: { "berth.dev/project-uid": "1" } }
        const kind = { apiVersion: "rbac.authorization.k8s.io/v1", kind: "RoleBinding" }
        const path = join(folder, "binding.json")
        await writeFile(path, JSON.stringify({ ...kind, metadata, roleRef, subjects: [subject] }))
        return await attempt("create", "-f", path)
      }
      const itself = { kind: "ServiceAccount", name: "berth-operator", namespace: "berth-system" }
      await expect(bind(itself)).rejects.toThrow(/gives roles to/)
      await expect(bind({ kind: "User", name: operator })).rejects.toThrow(/gives roles to/)
      await expect(bind({ kind: "Group", name: "system:authenticated" })).rejects.toThrow(/gives roles to/)
      await bind({ kind: "User", name: "https://issuer.example.com#ada" })
      await bind({ kind: "ServiceAccount", name: "key-1", namespace: "berth-identities" })
    })

    it("let the roles view, edit and admin do to jobs what they do to other objects", async () => {
      for (const role of ["view", "edit", "admin"]) {
        await kubectl("create", "rolebinding", role, `--clusterrole=${role}`, `--user=${role}r`, "-n", elsewhere)
      }
      // The controller manager aggregates the roles asynchronously.
      await eventually(async () => expect(await can("viewr", "list", "jobs.berth.dev", elsewhere)).toBe(true))
      await eventually(async () => expect(await can("editr", "create", "jobs.berth.dev", elsewhere)).toBe(true))
      await eventually(async () =>
        expect(await can("adminr", "grant-admin", "apikeys.berth.dev", elsewhere)).toBe(true),
      )
      expect(await can("viewr", "create", "jobs.berth.dev", elsewhere)).toBe(false)
      expect(await can("adminr", "list", "apikeys.berth.dev", elsewhere)).toBe(true)
      expect(await can("editr", "get", "connections.berth.dev", elsewhere)).toBe(false)
      expect(await can("editr", "grant-viewer", "apikeys.berth.dev", elsewhere)).toBe(false)
      expect(await can("adminr", "get", "launches.berth.dev", elsewhere)).toBe(false)
      expect(await can("adminr", "get", "statements.berth.dev", elsewhere)).toBe(false)
      expect(await can("adminr", "patch", "jobs.berth.dev/status", elsewhere)).toBe(false)
    })
  })
})
