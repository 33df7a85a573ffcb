import { Agent, request } from "undici"
import { describe, expect, it, onTestFinished, vi } from "vitest"
import { kubeConfig, kubectl, testNamespace } from "./control-plane.ts"

const DEADLINE = { timeout: 150_000, interval: 100 }

describe("the control plane of the tests", () => {
  const namespace = testNamespace("shared")

  it("works with kubectl as the administrator", async () => {
    expect(await kubectl(["auth", "can-i", "*", "*"])).toBe("yes\n")
    const manifest = JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "piped", namespace } })
    expect(await kubectl(["apply", "--server-side", "-f", "-"], manifest)).toContain("configmap/piped")
    await expect(kubectl(["get", "configmap", "absent", "-n", namespace])).rejects.toThrow(/NotFound/)
  })

  it("rejects clients without a certificate or token", async () => {
    const cluster = kubeConfig().getCurrentCluster()
    const ca = Buffer.from(cluster?.caData ?? "", "base64")
    const dispatcher = new Agent({ connect: { ca } })
    onTestFinished(() => dispatcher.close())
    for (const path of ["/api/v1/namespaces", "/version", "/readyz"]) {
      expect((await request(`${cluster?.server}${path}`, { dispatcher })).statusCode).toBe(401)
    }
  })

  it("garbage collects the objects of a deleted owner", async () => {
    const apply = (metadata: object) =>
      kubectl(
        ["create", "-f", "-", "-o", "jsonpath={.metadata.uid}"],
        JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { ...metadata, namespace } }),
      )
    const uid = await apply({ name: "owner" })
    await apply({ name: "owned", ownerReferences: [{ apiVersion: "v1", kind: "ConfigMap", name: "owner", uid }] })
    await kubectl(["delete", "configmap", "owner", "-n", namespace])
    await vi.waitFor(async () => {
      await expect(kubectl(["get", "configmap", "owned", "-n", namespace])).rejects.toThrow(/NotFound/)
    }, DEADLINE)
  })

  it("finishes the deletion of a namespace and counts quotas", async () => {
    const name = `${namespace}-gone`
    await kubectl(["create", "namespace", name])
    await kubectl(["create", "quota", "few", "--hard=configmaps=2", "-n", name])
    await vi.waitFor(async () => {
      // Every namespace gets the root CA's configmap, which counts.
      const used = await kubectl(["get", "quota", "few", "-n", name, "-o", "jsonpath={.status.used.configmaps}"])
      expect(used).toBe("1")
    }, DEADLINE)
    await kubectl(["delete", "namespace", name, "--wait", "--timeout=150s"])
    await expect(kubectl(["get", "namespace", name])).rejects.toThrow(/NotFound/)
  }, 400_000)
})
