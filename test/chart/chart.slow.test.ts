import { execFile } from "node:child_process"
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { dump, load, loadAll } from "js-yaml"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { findBinaries } from "../../dev/controlplane/binaries.ts"
import { type ControlPlane, startControlPlane } from "../../dev/controlplane/control-plane.ts"
import { cacheDirectory } from "../../dev/controlplane/programs.ts"
import { clusterOf, programCredentials } from "../../dev/program-credentials.ts"
import { valuesTable } from "../../scripts/chart-values.ts"
import { DRAIN_SECONDS } from "../../src/api/main.ts"
import { connect } from "../../src/connect.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { ABILITIES_POLICY, OPERATOR_LEASE } from "../../src/core/identity/installation.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { JOBS } from "../../src/core/resources.ts"
import { eventually } from "../harness/eventually.ts"
import { isAllowed } from "../harness/rights.ts"
import { missingTool, needing } from "../needing.ts"
import { CHART, helm } from "./helm.ts"
import { kubeconform, writeSchemas } from "./kubeconform.ts"
import { othersKinds } from "./others-kinds.ts"

/** Control plane of its own, because a release owns cluster-wide kinds and roles. */
let controlPlane: ControlPlane
let client: KubeClient
let folder: string
const NAMESPACE = "berth"
const BESIDE = "berth-beside"
const LEAST = { baseDomain: "berth.example.com" }

interface PodSpec {
  terminationGracePeriodSeconds: number
  containers: {
    args: string[]
    env: { name: string; value?: string; valueFrom?: object }[]
    ports?: { name: string; containerPort: number }[]
    lifecycle?: { preStop: { sleep: { seconds: number } } }
    livenessProbe?: object
    readinessProbe?: object
    volumeMounts?: object[]
  }[]
  volumes?: object[]
}
interface Deployment extends ApiObject {
  spec: { template: { spec: PodSpec } }
}
const DEPLOYMENTS = declareResource<Deployment>({
  group: "apps",
  version: "v1",
  kind: "Deployment",
  plural: "deployments",
  namespaced: true,
})

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

async function template(values: object, { namespace = NAMESPACE, set = [] as string[] } = {}): Promise<string> {
  const args = ["template", "berth", CHART, "--namespace", namespace, "--kube-version", "1.35.0"]
  return await helm([...args, "--values", await valuesFile(values), ...set.flatMap((one) => ["--set", one])])
}

async function rendered(...args: Parameters<typeof template>): Promise<ApiObject[]> {
  return objectsIn(await template(...args))
}

function objectsIn(text: string): ApiObject[] {
  return (loadAll(text) as (ApiObject | null)[]).filter((object) => object !== null)
}

/** Returns the pods of a Deployment and their only container. */
function programOf(objects: readonly ApiObject[], name: string) {
  const deployment = objects.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === name)
  const { spec } = (deployment as Deployment).spec.template
  const [container] = spec.containers
  const env = new Map(container?.env.map((variable) => [variable.name, variable.value]))
  return { spec, container, env }
}

const kindsOf = (objects: readonly ApiObject[]): Set<string> => new Set(objects.map(({ kind = "" }) => kind))

const EVERYTHING = {
  ...LEAST,
  oidc: {
    issuer: "https://issuer.example.com",
    audience: "berth",
    workloadIssuers: [{ issuer: "https://ci.example.com", audience: "https://berth.example.com" }],
  },
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
  networkPolicy: {
    enabled: true,
    facadeFrom: [{ ipBlock: { cidr: "10.0.0.0/8" } }],
    metricsFrom: [{ namespaceSelector: {} }],
  },
  metrics: { serviceMonitor: { enabled: true }, prometheusRule: { enabled: true }, dashboard: { enabled: true } },
  commonLabels: { team: "platform" },
  extraObjects: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "{{ .Release.Name }}-extra" } }],
}

const CERTIFICATE_WITHOUT_ISSUER = { enabled: true, tls: { certManager: { enabled: true } } }
const TURNED = { autoscaling: { enabled: true, minReplicas: 3, maxReplicas: 2 } }
const UNMEASURED = { enabled: false, serviceMonitor: { enabled: true } }

/** Sets of values that users choose. */
const VARIANTS = {
  least: LEAST,
  everything: EVERYTHING,
  "nothing to measure": { ...LEAST, metrics: { enabled: false }, networkPolicy: { enabled: true } },
  "logs that go with their pod": { ...LEAST, logs: { persistence: { enabled: false } }, operator: { replicas: 1 } },
  "one namespace": { ...LEAST, watchNamespace: "default" },
  "kinds from elsewhere": { ...LEAST, crds: { enabled: false }, image: { digest: `sha256:${"0".repeat(64)}` } },
  "an authority of one's own": {
    ...LEAST,
    facade: {
      service: { type: "LoadBalancer", port: 443 },
      extraVolumes: [{ name: "authority", configMap: { name: "authority" } }],
      extraVolumeMounts: [{ name: "authority", mountPath: "/etc/authority" }],
    },
    operator: {
      extraVolumes: [{ name: "authority", configMap: { name: "authority" } }],
      extraVolumeMounts: [{ name: "authority", mountPath: "/etc/authority" }],
    },
  },
}

describe("the chart", () => {
  it("renders without the values that the former version had not, as helm upgrade --reuse-values does", async () => {
    const missing = [
      "oidc.console",
      "oidc.workloadIssuers",
      "webhooks",
      "proxy",
      "caCertificates",
      "vms",
      "facade.workdirMibPerMinute",
      "limits.webhooks",
      "limits.uploadMib",
      "limits.machines",
    ]
    const set = missing.map((name) => `${name}=null`)
    const oidc = { issuer: "https://issuer.example.com", audience: "berth" }
    for (const values of [LEAST, { ...LEAST, oidc }]) {
      expect(kindsOf(await rendered(values, { set }))).toEqual(kindsOf(await rendered(values)))
    }
  })

  it("renders what each value asks for, and nothing else", async () => {
    const optional = ["Ingress", "Certificate", "HTTPRoute", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"]
    const least = kindsOf(await rendered(LEAST))
    for (const kind of [...optional, "HorizontalPodAutoscaler", "Secret"]) expect(least).not.toContain(kind)
    expect(least).toContain("PersistentVolumeClaim")
    const all = await rendered(EVERYTHING)
    for (const kind of [...optional, "HorizontalPodAutoscaler"]) expect(kindsOf(all)).toContain(kind)
    expect(kindsOf(all)).not.toContain("PersistentVolumeClaim")
    // A client that follows a log waits until the job ends.
    const route = all.find(({ kind }) => kind === "HTTPRoute")
    expect(route).toMatchObject({ spec: { rules: [{ timeouts: { request: "0s" } }] } })
    // The operator creates the keys. A chart would create new ones with each sync of a GitOps tool.
    expect(kindsOf(all)).not.toContain("Secret")
    for (const { metadata } of all.filter(({ metadata: { name } }) => name !== "berth-extra")) {
      expect(metadata.labels, metadata.name).toMatchObject({ team: "platform" })
    }
  })

  it("needs no wildcard for an installation whose projects have no hosts", async () => {
    const hosts = async (values: object) => JSON.stringify(await rendered({ ...EVERYTHING, ...values }))
    expect(await hosts({})).toContain("*.berth.example.com")
    const without = await hosts({ facade: { projectHosts: false } })
    expect(without).not.toContain("*.berth.example.com")
    expect(without).toContain(JSON.stringify({ name: "BERTH_PROJECT_HOSTS", value: "false" }))
    expect(without).not.toContain("BERTH_SESSION_DOMAIN")
    const ports = await hosts({ facade: { sessions: { enabled: true, domain: "ports.example.com" } } })
    expect(ports).toContain(JSON.stringify({ name: "BERTH_SESSION_DOMAIN", value: "ports.example.com" }))
    // Of the Ingress, its certificate and the HTTPRoute.
    expect(ports.split('"*.ports.example.com"').length - 1).toBeGreaterThanOrEqual(3)
  })

  it.each<[string, object, RegExp]>([
    ["no domain", {}, /baseDomain/],
    ["a domain that is none", { baseDomain: "Not A Domain" }, /baseDomain/],
    ["an unknown value", { ...LEAST, replicas: 2 }, /replicas/],
    ["a text for a number", { ...LEAST, operator: { replicas: "two" } }, /operator\/replicas/],
    ["several façades on one volume", { ...LEAST, facade: { replicas: 2 } }, /logs\.bucket/],
    ["half of an issuer", { ...LEAST, oidc: { issuer: "https://i.example.com" } }, /oidc\.issuer and oidc\.audience/],
    [
      "a secret of the client of command lines",
      { ...LEAST, oidc: { console: { clientSecret: { name: "s" } } } },
      /clientId/,
    ],
    [
      "a secret that browsers would need",
      { ...LEAST, oidc: { console: { clientId: "web", clientSecret: { name: "s" }, exchange: "browser" } } },
      /oidc\.console\.exchange/,
    ],
    [
      "an issuer of workloads without an audience",
      { ...LEAST, oidc: { workloadIssuers: [{ issuer: "https://ci.example.com" }] } },
      /audience/,
    ],
    ["an exchange that is none", { ...LEAST, oidc: { console: { exchange: "issuer" } } }, /oidc\/console\/exchange/],
    ["an address that is none", { ...LEAST, gatewayUrl: "berth.example.com" }, /gatewayUrl/],
    ["a digest that is none", { ...LEAST, image: { digest: "latest" } }, /image\/digest/],
    ["a number of proxies that is none", { ...LEAST, facade: { trustProxy: 0 } }, /facade\/trustProxy/],
    ["a namespace that is none", { ...LEAST, watchNamespace: "Not One" }, /watchNamespace/],
    [
      "a label of pods that selects them",
      { ...LEAST, operator: { podLabels: { "app.kubernetes.io/name": "x" } } },
      /operator\/podLabels/,
    ],
    [
      "a claim beside a bucket",
      { ...LEAST, logs: { bucket: "b", persistence: { existingClaim: "c" } } },
      /existingClaim is not used with logs\.bucket/,
    ],
    [
      "a claim without persistence",
      { ...LEAST, logs: { persistence: { enabled: false, existingClaim: "c" } } },
      /existingClaim is not used with logs\.persistence/,
    ],
    ["a password of a proxy", { ...LEAST, proxy: { https: "http://u:p@proxy.example.com" } }, /proxy\/https/],
    [
      "a password of the VMs' proxy",
      { ...LEAST, vms: { proxy: { url: "http://u:p@a.example.com" } } },
      /vms\/proxy\/url/,
    ],
    ["authorities for VMs without any", { ...LEAST, vms: { trustCaCertificates: true } }, /caCertificates\.configMap/],
    ["arguments that are no list", { ...LEAST, facade: { extraArgs: "--help" } }, /facade\/extraArgs/],
    ["a port that is taken", { ...LEAST, metrics: { port: 8080 } }, /metrics\.port is 8080/],
    ["an unknown level of logs", { ...LEAST, logLevel: "loud" }, /logLevel/],
    ["a port that is none", { ...LEAST, metrics: { port: 70_000 } }, /metrics\/port/],
    [
      "one volume for a list of them",
      { ...LEAST, operator: { extraVolumes: { name: "a" } } },
      /operator\/extraVolumes/,
    ],
    ["a certificate without an issuer", { ...LEAST, ingress: CERTIFICATE_WITHOUT_ISSUER }, /issuerRef\.name/],
    ["more façades at least than at most", { ...LEAST, logs: { bucket: "b" }, facade: TURNED }, /minReplicas/],
    ["metrics for a monitor that are not there", { ...LEAST, metrics: UNMEASURED }, /metrics\.enabled/],
    ["a route without a gateway", { ...LEAST, httpRoute: { enabled: true } }, /parentRefs/],
  ])("refuses %s in words", async (_what, values, message) => {
    await expect(rendered(values)).rejects.toThrow(message)
  })

  it("serves the console, unless it is turned off", async () => {
    const envOf = async (values: object) => programOf(await rendered({ ...LEAST, ...values }), "berth-facade").env
    expect((await envOf({})).has("BERTH_CONSOLE")).toBe(false)
    expect((await envOf({ facade: { console: { enabled: false } } })).get("BERTH_CONSOLE")).toBe("false")
  })

  it("gives the façade the console's client, and mounts the client's secret", async () => {
    const console = {
      clientId: "web",
      clientSecret: { name: "console-client" },
      audience: "web",
      scopes: "openid groups",
    }
    const objects = await rendered({ ...EVERYTHING, oidc: { ...EVERYTHING.oidc, console } })
    const { env, spec, container } = programOf(objects, "berth-facade")
    const set = [...env].filter(([name]) => name.startsWith("BERTH_OIDC_CONSOLE_"))
    expect(Object.fromEntries(set)).toEqual({
      BERTH_OIDC_CONSOLE_CLIENT_ID: "web",
      BERTH_OIDC_CONSOLE_SECRET_FILE: "/etc/berth/console-client/client-secret",
      BERTH_OIDC_CONSOLE_AUDIENCE: "web",
      BERTH_OIDC_CONSOLE_SCOPES: "openid groups",
    })
    const items = [{ key: "client-secret", path: "client-secret" }]
    expect(spec.volumes).toContainEqual({ name: "console-client", secret: { secretName: "console-client", items } })
    const mount = { name: "console-client", mountPath: "/etc/berth/console-client", readOnly: true }
    expect(container?.volumeMounts).toContainEqual(mount)
    expect(JSON.stringify(await rendered(EVERYTHING))).not.toContain("console-client")
  })

  it("gives the façade the issuers of workloads, also without a sign-in of people", async () => {
    const { workloadIssuers } = EVERYTHING.oidc
    for (const values of [EVERYTHING, { ...LEAST, oidc: { workloadIssuers } }]) {
      const { env } = programOf(await rendered(values), "berth-facade")
      expect(JSON.parse(env.get("BERTH_WORKLOAD_ISSUERS") ?? "")).toEqual(workloadIssuers)
    }
    const { env } = programOf(await rendered(LEAST), "berth-facade")
    expect(env.has("BERTH_WORKLOAD_ISSUERS")).toBe(false)
  })

  it("gives operator and façade the caps of the installation, as numbers", async () => {
    const set = ["caps.maxMonthlyUsd=5000000", "caps.maxHourlyUsd=12.5", "caps.maxVms=0", "caps.onExceeded=cancel"]
    const objects = await rendered(LEAST, { set })
    for (const program of ["berth-operator", "berth-facade"]) {
      const text = programOf(objects, program).env.get("BERTH_CAPS") ?? ""
      expect(JSON.parse(text)).toEqual({ maxMonthlyUsd: 5e6, maxHourlyUsd: 12.5, maxVms: 0, onExceeded: "cancel" })
    }
    expect(programOf(await rendered(LEAST), "berth-operator").env.has("BERTH_CAPS")).toBe(false)
  })

  it("accepts numbers in the forms of helm and YAML", async () => {
    const values = { ...LEAST, facade: { requestsPerMinute: 1_000_000, failuresPerMinute: 0 } }
    const { env } = programOf(await rendered(values, { set: ["facade.trustProxy=1"] }), "berth-facade")
    expect(env.get("BERTH_TRUST_PROXY")).toBe("1")
    expect(env.get("BERTH_REQUESTS_PER_MINUTE")).toBe("1000000")
    expect(env.get("BERTH_FAILURES_PER_MINUTE")).toBe("0")
  })

  it("gives the pods of each program what its values ask for, and keeps them restricted", async () => {
    const values = {
      podLabels: { "azure.workload.identity/use": "true" },
      priorityClassName: "system-cluster-critical",
      podSecurityContext: { fsGroup: 1000, supplementalGroups: [7] },
      containerSecurityContext: { runAsUser: 1000 },
      extraArgs: ["--log-level=debug", "--help"],
    }
    const objects = await rendered({ ...LEAST, operator: values, facade: values })
    for (const name of ["operator", "facade"]) {
      const { spec, container } = programOf(objects, `berth-${name}`)
      const pod = objects.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === `berth-${name}`)
      expect(pod).toMatchObject({
        spec: { template: { metadata: { labels: { ...values.podLabels, "app.kubernetes.io/component": name } } } },
      })
      expect(spec).toMatchObject({
        priorityClassName: "system-cluster-critical",
        securityContext: { runAsNonRoot: true, runAsUser: 65532, fsGroup: 1000, supplementalGroups: [7] },
      })
      expect(container).toMatchObject({
        args: [name, ...values.extraArgs],
        securityContext: { runAsUser: 1000, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } },
      })
    }
  })

  it("gives both programs the proxy and the authorities, and VMs those of their own", async () => {
    const url = "http://proxy.example.com:3128"
    const values = {
      ...{ ...LEAST, proxy: { http: url, https: url, noProxy: ".corp.example.com,10.0.0.1" } },
      caCertificates: { configMap: "authorities" },
      vms: { proxy: { url, noProxy: "mirror.example.com" }, trustCaCertificates: true },
    }
    const objects = await rendered(values)
    for (const name of ["berth-operator", "berth-facade"]) {
      const { spec, container, env } = programOf(objects, name)
      expect([env.get("HTTP_PROXY"), env.get("HTTPS_PROXY")]).toEqual([url, url])
      expect(env.get("NO_PROXY")).toBe(".corp.example.com,10.0.0.1")
      expect(env.get("NODE_EXTRA_CA_CERTS")).toBe("/etc/berth/ca/ca.crt")
      const items = [{ key: "ca.crt", path: "ca.crt" }]
      expect(spec.volumes).toContainEqual({ name: "ca-certificates", configMap: { name: "authorities", items } })
      const mount = { name: "ca-certificates", mountPath: "/etc/berth/ca", readOnly: true }
      expect(container?.volumeMounts).toContainEqual(mount)
    }
    const { env } = programOf(objects, "berth-operator")
    expect(JSON.parse(env.get("BERTH_VM_PROXY") ?? "")).toEqual({ url, noProxy: "mirror.example.com" })
    expect(env.get("BERTH_VM_CA")).toBe("/etc/berth/ca/ca.crt")
    // Hosts that join as machines get them with their command.
    expect(programOf(objects, "berth-facade").env.get("BERTH_GATEWAY_CA")).toBe("/etc/berth/ca/ca.crt")
    const least = JSON.stringify(await rendered(LEAST))
    for (const name of ["_PROXY", "NODE_EXTRA_CA_CERTS", "BERTH_VM", "BERTH_GATEWAY_CA", "/etc/berth/ca"])
      expect(least).not.toContain(name)
  })

  it("gives the operator the idle limit of jobs without one, in whole seconds, and none by default", async () => {
    const envOf = async (values: object) => programOf(await rendered({ ...LEAST, ...values }), "berth-operator").env
    expect((await envOf({ operator: { defaultIdleSeconds: 2_592_000 } })).get("BERTH_DEFAULT_IDLE_SECONDS")).toBe(
      "2592000",
    )
    expect((await envOf({})).has("BERTH_DEFAULT_IDLE_SECONDS")).toBe(false)
  })

  it("gives both programs the reuse of VMs of jobs without one, so that dry runs show it, and none by default", async () => {
    const shown = async (values: object) => {
      const objects = await rendered({ ...LEAST, ...values })
      const programs = ["berth-operator", "berth-facade"]
      return programs.map((name) => programOf(objects, name).env.get("BERTH_DEFAULT_REUSE_IDLE_SECONDS"))
    }
    expect(await shown({ defaultReuseIdleSeconds: 3600 })).toEqual(["3600", "3600"])
    expect(await shown({})).toEqual([undefined, undefined])
  })

  it("renders without programs, as a restore needs it", async () => {
    const objects = await rendered({ ...LEAST, operator: { replicas: 0 }, facade: { replicas: 0 } })
    for (const name of ["berth-operator", "berth-facade"]) {
      expect(objects.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === name)).toMatchObject({
        spec: { replicas: 0 },
      })
    }
  })

  it("puts logs on a claim of the user's own", async () => {
    const objects = await rendered({ ...LEAST, logs: { persistence: { existingClaim: "nas" } } })
    expect(kindsOf(objects)).not.toContain("PersistentVolumeClaim")
    const { spec } = programOf(objects, "berth-facade")
    expect(spec).toMatchObject({ volumes: [{ name: "logs", persistentVolumeClaim: { claimName: "nas" } }] })
  })

  it("gives all objects, and selectors, the name of the values", async () => {
    const objects = await rendered({ ...EVERYTHING, nameOverride: "jobs" })
    const text = JSON.stringify(objects.filter(({ metadata: { name } }) => name !== "berth-extra"))
    expect(new Set(text.match(/"app\.kubernetes\.io\/name":"[^"]*"/g))).toEqual(
      new Set(['"app.kubernetes.io/name":"jobs"']),
    )
  })

  it("keeps a façade serving until its endpoint is removed everywhere, then stops it in order", async () => {
    const { spec, container } = programOf(await rendered(LEAST), "berth-facade")
    const { seconds = 0 } = container?.lifecycle?.preStop.sleep ?? {}
    expect(seconds).toBeGreaterThan(0)
    expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(seconds + DRAIN_SECONDS)
  })

  it("declares health probes of the pods, with metrics and without", async () => {
    for (const enabled of [true, false]) {
      const objects = await rendered({ ...LEAST, metrics: { enabled, port: 9999 } })
      const { container, env } = programOf(objects, "berth-operator")
      expect(container?.ports).toEqual([{ name: "metrics", containerPort: 9999 }])
      for (const probe of [container?.livenessProbe, container?.readinessProbe])
        expect(probe).toMatchObject({ httpGet: { port: "metrics" } })
      expect(env.get("BERTH_METRICS_PORT")).toBe("9999")
      expect(objects.filter(({ metadata: { name } }) => name === "berth-metrics")).toHaveLength(enabled ? 1 : 0)
    }
  })

  it("tests a release with the image's Node.js, from an address that may reach the façades", async () => {
    const dockerfile = await readFile(join(CHART, "..", "..", "Dockerfile"), "utf8")
    const [, node = ""] = [...dockerfile.matchAll(/^ENTRYPOINT \["([^"]+)"/gm)].at(-1) ?? []
    const where = { nodeSelector: { a: "b" }, tolerations: [{ operator: "Exists" }] }
    const image = { imagePullSecrets: [{ name: "registry" }], image: { pullPolicy: "Never" } }
    const objects = await rendered({ ...EVERYTHING, ...image, facade: { ...EVERYTHING.facade, ...where } })
    const pod = objects.find(({ kind }) => kind === "Pod")
    expect(pod).toMatchObject({
      spec: {
        ...where,
        imagePullSecrets: image.imagePullSecrets,
        containers: [{ command: [node, "--input-type=module", "--eval"], imagePullPolicy: "Never" }],
      },
    })
    const policies = objects.filter(({ kind }) => kind === "NetworkPolicy") as NetworkPolicy[]
    expect(policies).toHaveLength(2)
    // Each rule names its clients: that pod must be among them.
    for (const { from = [] } of policies.flatMap(({ spec }) => spec.ingress)) {
      const labels = from.map(({ podSelector }) => podSelector?.matchLabels)
      expect(pod?.metadata.labels).toMatchObject(labels.find((one) => one !== undefined) ?? { none: "none" })
    }
  })

  it("describes the purpose of each value", () => {
    const schema = JSON.stringify({ properties: { a: { properties: { b: { type: "string" } } } } })
    expect(valuesTable("# Some.\na:\n  # One.\n  b: x\n", schema)).toContain('| `a.b` | `"x"` | string | One. |')
    expect(() => valuesTable("# Some.\na:\n  b: x\n", schema)).toThrow("has no comment for a.b")
  })

  it("declares its image and all kinds for Artifact Hub", async () => {
    const { annotations, appVersion } = await chartFile()
    expect(load(annotations["artifacthub.io/images"] ?? "")).toMatchObject(
      ["berth", "berth-agent", "berth-volumes"].map((name) => ({ image: `ghcr.io/berth-dev/${name}:${appVersion}` })),
    )
    const kinds = load(annotations["artifacthub.io/crds"] ?? "") as { name: string }[]
    expect(kinds.map(({ name }) => name).sort()).toEqual(KINDS.map(({ plural }) => `${plural}.berth.dev`).sort())
  })

  it("complies with Kubernetes' restricted Pod Security", async () => {
    const pods = (await rendered(EVERYTHING)).filter(({ kind = "" }) => ["Deployment", "Pod"].includes(kind))
    expect(pods).toHaveLength(3)
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: "restricted", labels: RESTRICTED } }
    const specs = pods.map((pod, i) => ({
      ...{ apiVersion: "v1", kind: "Pod", metadata: { name: `pod-${i}`, namespace: "restricted" } },
      spec: { ...podSpecOf(pod), serviceAccountName: "default", serviceAccount: undefined },
    }))
    await kubectl(["apply", "-f", await valuesFile(namespace)])
    await eventually(() => kubectl(["get", "serviceaccount", "default", "-n", "restricted"]))
    // Created as pods: for a Deployment of pods that are rejected, the API server only warns.
    for (const spec of specs) await kubectl(["create", "--dry-run=server", "-f", await valuesFile(spec)])
    const open = { ...specs[0], spec: { ...specs[0]?.spec, hostNetwork: true } }
    await expect(kubectl(["create", "--dry-run=server", "-f", await valuesFile(open)])).rejects.toThrow(/restricted/)
  })
})

interface NetworkPolicy extends ApiObject {
  spec: { ingress: { from?: { podSelector?: { matchLabels: Record<string, string> } }[] }[] }
}

async function chartFile(): Promise<{ appVersion: string; annotations: Record<string, string> }> {
  return load(await readFile(join(CHART, "Chart.yaml"), "utf8")) as Awaited<ReturnType<typeof chartFile>>
}

const RESTRICTED = { "pod-security.kubernetes.io/enforce": "restricted" }

function podSpecOf(object: ApiObject): object {
  const { spec } = object as { spec?: { template?: { spec: object } } }
  return spec?.template?.spec ?? spec ?? {}
}

async function kubectl(args: string[]): Promise<string> {
  const all = ["--kubeconfig", controlPlane.kubeconfigPath, ...args]
  return (await promisify(execFile)("kubectl", all, { maxBuffer: 64 * 1024 ** 2 })).stdout
}

/** Returns a client with the rights that the release gave a program. */
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

interface Crd extends ApiObject {
  spec: {
    versions: { schema: { openAPIV3Schema: { properties: { spec: { properties: Record<string, object> } } } } }[]
  }
}

/** Writes the chart of the time before Jobs had this field. */
async function olderChart(field: string): Promise<string> {
  const chart = join(folder, "older")
  await cp(CHART, chart, { recursive: true })
  const path = join(chart, "files", "crds", "jobs.berth.dev.yaml")
  const crd = load(await readFile(path, "utf8")) as Crd
  for (const { schema } of crd.spec.versions) delete schema.openAPIV3Schema.properties.spec.properties[field]
  await writeFile(path, dump(crd))
  return chart
}

describe("a release", { timeout: 180_000 }, () => {
  it("is installed, upgraded with its kinds and uninstalled by helm, and keeps kinds and jobs", async () => {
    const field = "ttlSecondsAfterFinished"
    await onCluster(["install", "berth", await olderChart(field), "--create-namespace"], LEAST)
    const { spec } = await client.get(DEPLOYMENTS, { namespace: NAMESPACE, name: "berth-operator" })
    const [container] = spec.template.spec.containers
    expect(container?.args).toEqual(["operator"])
    expect(container?.env).toContainEqual({ name: "BERTH_GATEWAY_URL", value: "https://berth.example.com" })
    const job = { apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata: { name: "kept", namespace: "default" } }
    const older = await valuesFile({ ...job, spec: { image: "a" } })
    // Helm does not wait until a kind is served.
    await eventually(() => kubectl(["apply", "-f", older]))
    const newer = await valuesFile({ ...job, spec: { image: "a", [field]: 60 } })
    const strictly = ["apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", newer]
    await expect(kubectl(strictly)).rejects.toThrow(`field not declared in schema`)
    await onCluster(["upgrade", "berth", CHART], { ...LEAST, operator: { replicas: 1 } })
    await eventually(() => kubectl(strictly))
    await helm(["uninstall", "berth", "--namespace", NAMESPACE, "--kubeconfig", controlPlane.kubeconfigPath])
    const kinds = await kubectl(["get", "crd", "-l", "app.kubernetes.io/part-of=berth", "-o", "name"])
    expect(kinds.trim().split("\n")).toHaveLength(KINDS.length)
    expect((await client.get(JOBS, { namespace: "default", name: "kept" })).spec).toMatchObject({ [field]: 60 })
    await onCluster(["install", "berth", CHART], LEAST)
  })

  it("asks for the abilities of the operator in its own namespace", async () => {
    const objects = await rendered(LEAST)
    const isBinding = ({ kind = "", metadata }: ApiObject) =>
      kind === "ValidatingAdmissionPolicyBinding" && metadata.name === ABILITIES_POLICY
    expect(objects.find(isBinding)).toMatchObject({
      spec: { paramRef: { name: OPERATOR_LEASE, namespace: NAMESPACE } },
    })
  })

  it("gives its programs their rights in its own namespace only", async () => {
    const operator = await clientOf("berth-operator")
    const facade = await clientOf("berth-facade")
    try {
      // The API server notices the new bindings a moment later.
      const jobs = await eventually(() => operator.list(JOBS, {}))
      expect(jobs).toMatchObject({ items: [{ metadata: { name: "kept" } }] })
      const job = { metadata: { name: "not-mine", namespace: "default" }, spec: { image: "a" } } as StoredJob
      await expect(operator.list(DEPLOYMENTS, { namespace: NAMESPACE })).rejects.toMatchObject({ code: 403 })
      await expect(facade.create(JOBS, job)).rejects.toMatchObject({ code: 403 })
      await expect(facade.list(DEPLOYMENTS, { namespace: NAMESPACE })).rejects.toMatchObject({ code: 403 })
    } finally {
      await Promise.all([operator.close(), facade.close()])
    }
  })

  it("grants read access to the Secrets of one namespace only where it serves one", async () => {
    const may = (name: string, verb: string, namespace: string): Promise<boolean> => {
      const user = `system:serviceaccount:${NAMESPACE}:${name}`
      return isAllowed(client, { user }, { verb, resource: "secrets", namespace })
    }
    expect(await may("berth-operator", "list", "kube-system")).toBe(true)
    await onCluster(["upgrade", "berth", CHART], { ...LEAST, watchNamespace: "default" })
    for (const [name, verb] of [
      ["berth-operator", "list"],
      ["berth-facade", "get"],
    ] as const) {
      await eventually(async () => expect(await may(name, verb, "kube-system")).toBe(false))
      await eventually(async () => expect(await may(name, verb, "default")).toBe(true))
    }
  })
})

needing(missingTool("kubeconform", "the CRDs of other projects")).describe("the chart's objects", () => {
  let schemas: string

  beforeAll(async () => {
    // A namespace of its own: the objects must not be merged with those of the release above.
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: BESIDE } }
    await apply([namespace, ...(await othersKinds())])
    await kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=100s"])
    schemas = join(folder, "schemas")
    // One of them has the volume for logs, the other has the rest.
    const objects = [...(await rendered(LEAST)), ...(await rendered(EVERYTHING))]
    // The API server publishes new kinds a moment later.
    await eventually(() => writeSchemas(objects, schemas, (path) => kubectl(["get", "--raw", path])))
  })

  async function apply(items: readonly object[], ...options: string[]): Promise<void> {
    const list = await valuesFile({ apiVersion: "v1", kind: "List", items })
    await kubectl(["apply", "--server-side", "--force-conflicts", "--validate=strict", ...options, "-f", list])
  }

  /** Writes a file of manifests, as helm prints them. */
  async function manifests(text: string): Promise<string> {
    const path = join(folder, `manifests-${++files}.yaml`)
    await writeFile(path, text)
    return path
  }

  it.each(Object.entries(VARIANTS))("pass helm lint, kubeconform and the API server: %s", async (_what, values) => {
    expect(await helm(["lint", CHART, "--strict", "--values", await valuesFile(values)])).toContain("0 chart(s) failed")
    const text = await template(values, { namespace: BESIDE })
    await kubeconform(await manifests(text), schemas)
    await apply(objectsIn(text), "--dry-run=server")
  })

  it.each([
    ["Deployment", { containers: [{ name: "a", image: "a", livenesProbe: {} }] }, "livenesProbe"],
    ["HTTPRoute", { rules: [{ timeout: { request: "0s" } }] }, "timeout"],
    ["ServiceMonitor", { selector: {}, endpoints: [{ port: "metrics", intervall: "30s" }] }, "intervall"],
    ["Certificate", { secretName: "a", issuerRef: { name: "a" }, dnsName: ["a"] }, "dnsName"],
    ["PrometheusRule", { groups: [{ name: "a", rules: [{ alert: "a", expresion: "1" }] }] }, "expresion"],
  ])("fail kubeconform with an unknown field: %s", async (kind, wrong, field) => {
    const object = (await rendered(EVERYTHING, { namespace: BESIDE })).find((one) => one.kind === kind)
    const spec = kind === "Deployment" ? { ...specOf(object), template: { spec: wrong } } : wrong
    const broken = { ...object, spec }
    await expect(kubeconform(await manifests(dump(broken)), schemas)).rejects.toThrow(field)
    await expect(apply([broken], "--dry-run=server")).rejects.toThrow(field)
  })

  it("show Artifact Hub valid examples, one of each kind that users create", async () => {
    const { annotations } = await chartFile()
    const examples = load(annotations["artifacthub.io/crdsExamples"] ?? "") as ApiObject[]
    const here = examples.map((example) => ({
      ...example,
      metadata: { ...example.metadata, ...(example.metadata.namespace !== undefined && { namespace: BESIDE }) },
    }))
    await apply(here, "--dry-run=server")
    const kinds = KINDS.map(({ kind }) => kind).filter((kind) => kind !== "Launch" && kind !== "Statement")
    expect(examples.map(({ kind }) => kind).sort()).toEqual(kinds.sort())
  })
})

function specOf(object: ApiObject | undefined): object {
  return (object as { spec?: object } | undefined)?.spec ?? {}
}
