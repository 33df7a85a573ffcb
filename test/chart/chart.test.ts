import { execFile } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { loadAll } from "js-yaml"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { JOB, type StoredJob } from "../../src/apis/job.ts"
import { findBinaries } from "../../src/embedded/controlplane/binaries.ts"
import { type ControlPlane, startControlPlane } from "../../src/embedded/controlplane/control-plane.ts"
import { cacheDirectory } from "../../src/embedded/controlplane/programs.ts"
import { clusterOf, programCredentials } from "../../src/embedded/program-credentials.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { type ApiObject, resourceOf } from "../../src/kube/resource.ts"
import { connect } from "../../src/wire.ts"
import { eventually } from "../cloud/eventually.ts"
import { CHART, helm } from "./helm.ts"

/** A release owns kinds and roles of the whole cluster, so it needs one of its own. */
let controlPlane: ControlPlane
let client: KubeClient
let folder: string
const NAMESPACE = "berth"
const LEAST = { baseDomain: "berth.example.com" }

interface Deployment extends ApiObject {
  spec: {
    template: {
      spec: {
        serviceAccountName: string
        containers: { args: string[]; env: { name: string; value?: string; valueFrom?: object }[] }[]
      }
    }
  }
}
const DEPLOYMENTS = resourceOf<Deployment>({
  group: "apps",
  version: "v1",
  kind: "Deployment",
  plural: "deployments",
  namespaced: true,
})
const JOBS = resourceOf<StoredJob>(JOB)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-chart-"))
  const binaries = await findBinaries({
    assetsDir: process.env["KUBEBUILDER_ASSETS"],
    cacheDir: cacheDirectory(process.env["XDG_CACHE_HOME"]),
    report: (line) => console.log(line),
  })
  controlPlane = await startControlPlane({ binaries, dataDir: join(folder, "control-plane"), durable: false })
  client = connect({ kubeconfig: controlPlane.kubeconfigPath })
}, 1_800_000)
afterAll(async () => {
  await client.close()
  await controlPlane.stop()
  await rm(folder, { recursive: true })
})

let files = 0
async function valuesFile(values: object): Promise<string> {
  const path = join(folder, `values-${++files}.json`)
  await writeFile(path, JSON.stringify(values))
  return path
}

async function onCluster(command: string[], values: object): Promise<string> {
  const flags = ["--namespace", NAMESPACE, "--kubeconfig", controlPlane.kubeconfigPath]
  return helm([...command, ...flags, "--values", await valuesFile(values)])
}

async function rendered(values: object): Promise<ApiObject[]> {
  const args = ["template", "berth", CHART, "--namespace", NAMESPACE, "--kube-version", "1.35.0"]
  const text = await helm([...args, "--values", await valuesFile(values)])
  return (loadAll(text) as (ApiObject | null)[]).filter((object) => object !== null)
}

const kindsOf = (objects: readonly ApiObject[]): Set<string> => new Set(objects.map(({ kind = "" }) => kind))

const EVERYTHING = {
  ...LEAST,
  oidc: { issuer: "https://issuer.example.com", audience: "berth" },
  logs: { bucket: "logs", prefix: "berth/", endpoint: "https://minio.example.com", region: "eu-west-1" },
  operator: {
    replicas: 3,
    nodeSelector: { a: "b" },
    tolerations: [{ operator: "Exists" }],
    podAnnotations: { a: "b" },
  },
  facade: { autoscaling: { enabled: true }, extraEnv: [{ name: "X", value: "y" }] },
  ingress: { enabled: true, className: "nginx", tls: { certManager: { enabled: true, issuerRef: { name: "le" } } } },
  httpRoute: { enabled: true, parentRefs: [{ name: "gateway" }] },
  networkPolicy: { enabled: true, metricsFrom: [{ namespaceSelector: {} }] },
  metrics: { serviceMonitor: { enabled: true }, prometheusRule: { enabled: true }, dashboard: { enabled: true } },
  commonLabels: { team: "platform" },
  extraObjects: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "{{ .Release.Name }}-extra" } }],
}

describe("the chart", () => {
  it("passes helm lint with the least and with every value", async () => {
    for (const values of [LEAST, EVERYTHING]) {
      const said = await helm(["lint", CHART, "--strict", "--values", await valuesFile(values)])
      expect(said).toContain("0 chart(s) failed")
    }
  })

  it("has what each value asks for, and nothing that it doesn't", async () => {
    const optional = ["Ingress", "Certificate", "HTTPRoute", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"]
    const least = kindsOf(await rendered(LEAST))
    for (const kind of [...optional, "HorizontalPodAutoscaler", "Secret"]) expect(least).not.toContain(kind)
    expect(least).toContain("PersistentVolumeClaim")
    const all = await rendered(EVERYTHING)
    for (const kind of [...optional, "HorizontalPodAutoscaler"]) expect(kindsOf(all)).toContain(kind)
    expect(kindsOf(all)).not.toContain("PersistentVolumeClaim")
    // The operator makes the keys: a chart's would be new ones with each sync of a GitOps tool.
    expect(kindsOf(all)).not.toContain("Secret")
    for (const { metadata } of all.filter(({ metadata: { name } }) => name !== "berth-extra")) {
      expect(metadata.labels, metadata.name).toMatchObject({ team: "platform" })
    }
  })

  it.each<[string, object, RegExp]>([
    ["no domain", {}, /baseDomain/],
    ["a domain that is none", { baseDomain: "Not A Domain" }, /baseDomain/],
    ["an unknown value", { ...LEAST, replicas: 2 }, /replicas/],
    ["a text for a number", { ...LEAST, operator: { replicas: "two" } }, /operator\/replicas/],
    ["several façades on one volume", { ...LEAST, facade: { replicas: 2 } }, /logs\.bucket/],
    ["half of an issuer", { ...LEAST, oidc: { issuer: "https://i.example.com" } }, /oidc\.issuer and oidc\.audience/],
    ["a route without a gateway", { ...LEAST, httpRoute: { enabled: true } }, /parentRefs/],
  ])("refuses %s in words", async (_what, values, message) => {
    await expect(rendered(values)).rejects.toThrow(message)
  })

  it("keeps to Kubernetes' restricted Pod Security", async () => {
    const pods = (await rendered(EVERYTHING)).filter(({ kind = "" }) => ["Deployment", "Pod"].includes(kind))
    expect(pods).toHaveLength(3)
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "restricted", labels: RESTRICTED } }
    const specs = pods.map((pod, i) => ({
      ...{ apiVersion: "v1", kind: "Pod", metadata: { name: `pod-${i}`, namespace: "restricted" } },
      spec: { ...podSpecOf(pod), serviceAccountName: "default", serviceAccount: undefined },
    }))
    await kubectl(["apply", "-f", await valuesFile(namespace)])
    await eventually(() => kubectl(["get", "serviceaccount", "default", "-n", "restricted"]))
    // Made as pods: a Deployment of pods that are refused is taken with a warning only.
    for (const spec of specs) await kubectl(["create", "--dry-run=server", "-f", await valuesFile(spec)])
    const open = { ...specs[0], spec: { ...specs[0]?.spec, hostNetwork: true } }
    await expect(kubectl(["create", "--dry-run=server", "-f", await valuesFile(open)])).rejects.toThrow(/restricted/)
  })
})

const RESTRICTED = { "pod-security.kubernetes.io/enforce": "restricted" }

function podSpecOf(object: ApiObject): object {
  const { spec } = object as { spec?: { template?: { spec: object } } }
  return spec?.template?.spec ?? spec ?? {}
}

async function kubectl(args: string[]): Promise<string> {
  const all = ["--kubeconfig", controlPlane.kubeconfigPath, ...args]
  return (await promisify(execFile)("kubectl", all)).stdout
}

/** A client with the rights that the release gave a program. */
async function clientOf(serviceAccount: string): Promise<KubeClient> {
  const { kubeConfig, stop } = await programCredentials({
    client,
    cluster: clusterOf(controlPlane.kubeconfigPath),
    serviceAccount: { namespace: NAMESPACE, name: serviceAccount },
    onError: (error) => console.error(error),
  })
  stop()
  return new KubeClient(kubeConfig)
}

describe("a release", () => {
  it("is installed, upgraded and uninstalled by helm; its kinds and jobs stay", async () => {
    await onCluster(["install", "berth", CHART, "--create-namespace"], LEAST)
    const { spec } = await client.get(DEPLOYMENTS, { namespace: NAMESPACE, name: "berth-operator" })
    const [container] = spec.template.spec.containers
    expect(container?.args).toEqual(["operator"])
    expect(container?.env).toContainEqual({ name: "BERTH_GATEWAY_URL", value: "https://berth.example.com" })
    const job = { apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata: { name: "kept", namespace: "default" } }
    await kubectl(["apply", "-f", await valuesFile({ ...job, spec: { image: "a" } })])
    await onCluster(["upgrade", "berth", CHART], { ...LEAST, operator: { replicas: 1 } })
    await onCluster(["upgrade", "berth", CHART], { ...LEAST, operator: { replicas: 1 } })
    await kubectl(["get", "crd", "jobs.berth.dev", "-o", "jsonpath={.metadata.annotations.helm\\.sh/resource-policy}"])
    await helm(["uninstall", "berth", "--namespace", NAMESPACE, "--kubeconfig", controlPlane.kubeconfigPath])
    expect((await client.get(JOBS, { namespace: "default", name: "kept" })).spec.image).toBe("a")
    await onCluster(["install", "berth", CHART], LEAST)
  })

  it("gives its programs their rights in its own namespace, and no others", async () => {
    const operator = await clientOf("berth-operator")
    const facade = await clientOf("berth-facade")
    try {
      expect(await operator.list(JOBS, {})).toMatchObject({ items: [{ metadata: { name: "kept" } }] })
      const job = { metadata: { name: "not-mine", namespace: "default" }, spec: { image: "a" } } as StoredJob
      await expect(operator.list(DEPLOYMENTS, { namespace: NAMESPACE })).rejects.toMatchObject({ code: 403 })
      await expect(facade.create(JOBS, job)).rejects.toMatchObject({ code: 403 })
      await expect(facade.list(DEPLOYMENTS, { namespace: NAMESPACE })).rejects.toMatchObject({ code: 403 })
    } finally {
      await Promise.all([operator.close(), facade.close()])
    }
  })
})
