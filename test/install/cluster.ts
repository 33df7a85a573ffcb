import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { inject } from "vitest"
import { connect } from "../../src/connect.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { bridgeAddress } from "../agent/images.ts"
import { helm, helmProgram } from "../chart/helm.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { Forwarder, type Target } from "./forwarder.ts"
import type { Image } from "./image.ts"
import { Kubelet, removeAbandonedPods } from "./kubelet.ts"
import { onlyContainer, portOf } from "./pods.ts"

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")

/** Namespace of the release. */
export const NAMESPACE = "berth"

/** Kubernetes' controllers that create the pods of Deployments and release claims that no pod uses any more. */
const CONTROLLERS = ["deployment-controller", "replicaset-controller", "persistentvolumeclaim-protection-controller"]

/** Audit policy: records the requests of all users, and for bindings also their role. */
const AUDIT_POLICY = {
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  rules: [
    { level: "Request", resources: [{ group: "rbac.authorization.k8s.io", resources: ["rolebindings"] }] },
    { level: "Metadata" },
  ],
}

/** Name in the API server's certificate. */
const API_SERVER = "kubernetes.default.svc"

export interface Cluster {
  /** Kubeconfig of an administrator. */
  readonly kubeconfigPath: string
  /** Client with the same rights. */
  readonly client: KubeClient
  readonly kubelet: Kubelet
  /** Folder that is removed at the end. */
  readonly folder: string
  /** Image that the pods run. */
  readonly image: Image
  /** Address of this host for containers. */
  readonly address: string
  readonly auditLog: string
  /** Port at `address` that leads to any ready pod of the façade. */
  readonly facadePort: number
  /** Makes a server of this host's loopback reachable for containers. Returns its port at `address`. */
  expose(url: string): Promise<number>
  /** Runs helm on the release `berth` in the namespace `berth`, with these values if the command takes any. */
  helm(command: readonly string[], values?: object): Promise<string>
  /** Runs kubectl as the administrator; `input` is its standard input. */
  kubectl(args: readonly string[], input?: string): Promise<string>
  /** Runs a bash script in the repository, with this kubectl and helm as the administrator. Returns its output. */
  shell(script: string): Promise<{ stdout: string; stderr: string }>
  close(): Promise<void>
}

/**
 * Starts a cluster for one release of the chart: a real control plane that creates the pods of Deployments and keeps an
 * audit log, and a node that runs these pods of this image.
 */
export async function startCluster(image: Image): Promise<Cluster> {
  await removeAbandonedPods()
  const folder = await mkdtemp(join(tmpdir(), "berth-install-"))
  const audit = { policy: join(folder, "audit-policy.json"), log: join(folder, "audit.log") }
  await writeFile(audit.policy, JSON.stringify(AUDIT_POLICY))
  // Without this file, a lookup returns only the first of several addresses.
  const resolver = join(folder, "host.conf")
  await writeFile(resolver, "multi on\n")
  const controlPlane = await startPrivateControlPlane({ audit, controllers: CONTROLLERS })
  const address = await bridgeAddress()
  const forwarders: Forwarder[] = []
  const forward = async (target: Target): Promise<number> => {
    const forwarder = await Forwarder.start(address, target)
    forwarders.push(forwarder)
    return forwarder.port
  }
  const expose = (url: string): Promise<number> => {
    const { hostname: host, port } = new URL(url)
    return forward(() => ({ host, port: Number(port) }))
  }
  const { kubeconfigPath } = controlPlane
  const client = connect({ kubeconfig: kubeconfigPath })
  const kubelet: Kubelet = new Kubelet({
    client,
    folder,
    apiServer: { name: API_SERVER, port: await expose(controlPlane.url) },
    hosts: () => [`${API_SERVER}:${address}`, `berth-facade:${address}`, ...metricsHosts(kubelet)],
    binds: [...image.binds, `${resolver}:/etc/host.conf:ro`],
  })
  const facadePort = await forward(() => facadeTarget(kubelet))
  return {
    ...{ kubeconfigPath, client, kubelet, folder, image, address, auditLog: audit.log, facadePort, expose },
    helm: async (command, values) => {
      const release = ["--namespace", NAMESPACE, "--kubeconfig", kubeconfigPath]
      if (values === undefined) return await helm([...command, ...release])
      const file = join(folder, `values-${randomUUID()}.json`)
      await writeFile(file, JSON.stringify(values))
      return await helm([...command, ...release, "--values", file])
    },
    kubectl: async (args, input = "") => {
      const running = run(inject("kubectlPath"), ["--kubeconfig", kubeconfigPath, ...args])
      running.child.stdin?.end(input)
      return (await running).stdout
    },
    shell: async (script) => {
      const programs = [inject("kubectlPath"), await helmProgram(), process.execPath].map(dirname)
      const PATH = [...programs, process.env["PATH"]].join(":")
      const env = { ...process.env, PATH, KUBECONFIG: kubeconfigPath }
      return await run("bash", ["--norc", "-euo", "pipefail", "-c", script], { cwd: ROOT, env })
    },
    close: async () => {
      await kubelet.close()
      await Promise.all(forwarders.map((forwarder) => forwarder.close()))
      await client.close()
      await controlPlane.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Returns the hosts entries of the Service for metrics, which has no address of its own. */
function metricsHosts(kubelet: Kubelet): string[] {
  const pods = [...kubelet.ready("operator"), ...kubelet.ready("facade")]
  return pods.map(({ status }) => `berth-metrics:${status?.podIP}`)
}

/** Returns any of the pods that are ready. */
function facadeTarget(kubelet: Kubelet): ReturnType<Target> {
  const pods = kubelet.ready("facade")
  const pod = pods[Math.floor(Math.random() * pods.length)]
  const host = pod?.status?.podIP
  return pod === undefined || host === undefined ? undefined : { host, port: portOf(onlyContainer(pod), "http") }
}
