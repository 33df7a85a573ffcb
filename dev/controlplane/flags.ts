import { type Pki, SERVICE_RANGE } from "./pki.ts"

/** The TCP ports of a control plane, all on 127.0.0.1. */
export interface Ports {
  readonly apiServer: number
  readonly etcdClient: number
  readonly etcdPeer: number
}

/** Values that the servers' command lines depend on. */
export interface Layout {
  readonly pki: Pki
  readonly ports: Ports
  /** Folder of etcd's data. */
  readonly etcdDirectory: string
  /** The kubeconfig of the controller manager. */
  readonly controllerManagerKubeconfig: string
  /** True if a write must be on disk before it is acknowledged. False for data that is not needed after a crash. */
  readonly durable: boolean
  /** Controllers in addition to the minimal ones. */
  readonly controllers: readonly string[]
  readonly audit?: AuditFiles | undefined
}

/** Audit log of the API server. */
export interface AuditFiles {
  /** Path of an audit.k8s.io/v1 Policy: it selects requests and the level of detail. */
  readonly policy: string
  /** Path of the log, JSON lines; created if missing. */
  readonly log: string
}

/**
 * The minimal controllers. Without them an API server misleads: nothing is garbage-collected, namespaces stay
 * Terminating, ServiceAccounts are missing, aggregated roles are empty, quotas do not count. No others: no pods or
 * nodes run here.
 */
const CONTROLLERS = [
  "clusterrole-aggregation-controller",
  "garbage-collector-controller",
  "namespace-controller",
  "resourcequota-controller",
  "root-ca-certificate-publisher-controller",
  "serviceaccount-controller",
  "serviceaccount-token-controller",
  "validatingadmissionpolicy-status-controller",
]

const SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"

/**
 * Returns etcd's flags. etcd listens on loopback only, and accepts only clients with a certificate of its own
 * authority: it stores Secrets unencrypted.
 */
export function etcdFlags({ pki, ports, etcdDirectory, durable }: Layout): string[] {
  const clientUrl = `https://127.0.0.1:${ports.etcdClient}`
  const peerUrl = `https://127.0.0.1:${ports.etcdPeer}`
  const tls = (prefix: string) => [
    `--${prefix}cert-file=${pki.certificate("etcd")}`,
    `--${prefix}key-file=${pki.key("etcd")}`,
    `--${prefix}trusted-ca-file=${pki.etcdAuthority}`,
    `--${prefix}client-cert-auth`,
  ]
  return [
    "--name=berth",
    `--data-dir=${etcdDirectory}`,
    `--listen-client-urls=${clientUrl}`,
    `--advertise-client-urls=${clientUrl}`,
    `--listen-peer-urls=${peerUrl}`,
    `--initial-advertise-peer-urls=${peerUrl}`,
    `--initial-cluster=berth=${peerUrl}`,
    "--log-level=warn",
    ...tls(""),
    ...tls("peer-"),
    ...(durable ? [] : ["--unsafe-no-fsync"]),
  ]
}

/** Returns the API server's flags. Admission plugins and feature gates keep Kubernetes' defaults. */
export function apiServerFlags({ pki, ports, audit }: Layout): string[] {
  return [
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    `--secure-port=${ports.apiServer}`,
    // The endpoints of the service "kubernetes" may not contain a loopback address.
    "--endpoint-reconciler-type=none",
    `--service-cluster-ip-range=${SERVICE_RANGE}`,
    `--tls-cert-file=${pki.certificate("kube-apiserver")}`,
    `--tls-private-key-file=${pki.key("kube-apiserver")}`,
    `--client-ca-file=${pki.clusterAuthority}`,
    "--anonymous-auth=false",
    "--authorization-mode=Node,RBAC",
    `--service-account-issuer=${SERVICE_ACCOUNT_ISSUER}`,
    `--service-account-key-file=${pki.serviceAccountKey}`,
    `--service-account-signing-key-file=${pki.serviceAccountKey}`,
    `--etcd-servers=https://127.0.0.1:${ports.etcdClient}`,
    `--etcd-cafile=${pki.etcdAuthority}`,
    `--etcd-certfile=${pki.certificate("etcd-client")}`,
    `--etcd-keyfile=${pki.key("etcd-client")}`,
    // Closes open watches at its end; without these flags it waits for its clients to close them.
    "--shutdown-send-retry-after",
    "--shutdown-watch-termination-grace-period=1s",
    "--profiling=false",
    ...(audit === undefined ? [] : [`--audit-policy-file=${audit.policy}`, `--audit-log-path=${audit.log}`]),
  ]
}

/** Returns the controller manager's flags. One instance, so no leader election; it serves nothing itself. */
export function controllerManagerFlags({ pki, controllerManagerKubeconfig, controllers }: Layout): string[] {
  return [
    `--kubeconfig=${controllerManagerKubeconfig}`,
    `--controllers=${[...CONTROLLERS, ...controllers].join(",")}`,
    "--use-service-account-credentials",
    `--root-ca-file=${pki.clusterAuthority}`,
    `--service-account-private-key-file=${pki.serviceAccountKey}`,
    "--leader-elect=false",
    "--secure-port=0",
    "--profiling=false",
    "--kube-api-qps=200",
    "--kube-api-burst=400",
  ]
}
