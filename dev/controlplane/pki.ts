import { X509Certificate } from "node:crypto"
import { access, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { newCertificateAuthority, newPrivateKey } from "./certificates.ts"

const RENEW_BEFORE_MS = 30 * 24 * 3_600_000
const LOOPBACK = ["localhost", "127.0.0.1", "::1"]

/** The in-cluster address of the API server: the first of the service range. */
export const SERVICE_RANGE = "10.0.0.0/24"
const API_SERVICE_ADDRESS = "10.0.0.1"

/** The certificates of a control plane: NAME.crt and NAME.key in one directory. */
const SUBJECTS = {
  cluster: {
    "kube-apiserver": {
      commonName: "kube-apiserver",
      hosts: [
        ...LOOPBACK,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        API_SERVICE_ADDRESS,
      ],
    },
    admin: { commonName: "berth-admin", organization: "system:masters" },
    "kube-controller-manager": { commonName: "system:kube-controller-manager" },
  },
  etcd: {
    etcd: { commonName: "etcd", hosts: LOOPBACK },
    "etcd-client": { commonName: "kube-apiserver" },
  },
} as const

type CertificateName = keyof typeof SUBJECTS.cluster | keyof typeof SUBJECTS.etcd

/** Paths of the certificates, keys and authorities of one control plane. */
export interface Pki {
  /** Signs the certificates of the API server and of its clients. */
  readonly clusterAuthority: string
  /** Signs the certificates of etcd and of its only client, so that no Kubernetes certificate opens etcd. */
  readonly etcdAuthority: string
  /** Signs and verifies ServiceAccount tokens. Never renewed, because every token would become invalid. */
  readonly serviceAccountKey: string
  certificate(name: CertificateName): string
  key(name: CertificateName): string
}

/**
 * Returns the certificates under `directory`. If all are valid for 30 more days, keeps those of an earlier start.
 * Otherwise creates new ones with new authorities, whose keys are not kept. Files are readable by their owner only.
 */
export async function loadPki(directory: string): Promise<Pki> {
  const certificates = join(directory, "certificates")
  await mkdir(directory, { recursive: true, mode: 0o700 })
  if (!(await areFresh(certificates))) await renew(certificates)
  const serviceAccountKey = join(directory, "service-account.key")
  if (!(await exists(serviceAccountKey))) await writeSecret(serviceAccountKey, newPrivateKey())
  return {
    clusterAuthority: join(certificates, "cluster-ca.crt"),
    etcdAuthority: join(certificates, "etcd-ca.crt"),
    serviceAccountKey,
    certificate: (name) => join(certificates, `${name}.crt`),
    key: (name) => join(certificates, `${name}.key`),
  }
}

async function renew(directory: string): Promise<void> {
  const draft = await mkdtemp(`${directory}-`)
  for (const [authorityName, subjects] of Object.entries(SUBJECTS)) {
    const authority = newCertificateAuthority(`berth-${authorityName}`)
    await writeSecret(join(draft, `${authorityName}-ca.crt`), authority.certificate)
    for (const [name, subject] of Object.entries(subjects)) {
      const { certificate, key } = authority.issue(subject)
      await writeSecret(join(draft, `${name}.crt`), certificate)
      await writeSecret(join(draft, `${name}.key`), key)
    }
  }
  await rm(directory, { recursive: true, force: true })
  await rename(draft, directory)
}

async function areFresh(directory: string): Promise<boolean> {
  if (!(await exists(directory))) return false
  const files = (await readdir(directory)).filter((file) => file.endsWith(".crt"))
  const expiries = files.map(async (file) => {
    return new X509Certificate(await readFile(join(directory, file))).validToDate.getTime()
  })
  return Math.min(...(await Promise.all(expiries))) > Date.now() + RENEW_BEFORE_MS
}

async function writeSecret(path: string, content: string): Promise<void> {
  const draft = join(dirname(path), `.${process.pid}.draft`)
  await writeFile(draft, content, { mode: 0o600 })
  await rename(draft, path)
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
