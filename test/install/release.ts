import { execFile } from "node:child_process"
import { join } from "node:path"
import { promisify } from "node:util"
import { request } from "undici"
import { expect } from "vitest"
import { newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { readInstallation } from "../../src/core/identity/installation.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { startMoto } from "../moto.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { type Cluster, NAMESPACE, startCluster } from "./cluster.ts"
import type { Image } from "./image.ts"
import { Machines } from "./machines.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const BASE_DOMAIN = "berth.example.com"
/** Regions of jobs: several, because each region has its own rate limit. */
export const REGIONS = ["eu-central-1", "eu-west-1", "us-east-1", "us-west-2"]

/** Credentials of a caller: the value of a key, or the token of a person. */
export type Caller = { key: string } | { token: string }

export interface CallOptions {
  /** Default: POST with a body, else GET. */
  method?: string
  body?: object
  headers?: Record<string, string>
  project?: string
}

export interface Answer {
  status: number
  text: string
}

/** The chart, installed in a cluster of its own beside a cloud and an issuer. */
export interface Release {
  cluster: Cluster
  issuer: Issuer
  ec2: Ec2Proxy
  machines: Machines
  /** Values of the installation. */
  values: object
  /** Calls the REST API of a project, or of the account scope if `project` is undefined. */
  call(caller: Caller, path: string, options?: CallOptions): Promise<Answer>
  /** Returns the answer's JSON of such a call. Rejects on an error status. */
  json<T>(...call: Parameters<Release["call"]>): Promise<T>
  /** Applies objects by kubectl. */
  apply(...objects: object[]): Promise<void>
  /** Runs a command of Berth's on this host. Returns the output of both streams. */
  berth(...args: string[]): Promise<{ stdout: string; stderr: string }>
  close(): Promise<void>
}

/**
 * Installs a chart with this image by helm, in a namespace that accepts only restricted pods. Waits until everything is
 * ready.
 */
export async function installRelease(chart: string, image: Image): Promise<Release> {
  const [cluster, moto] = await Promise.all([startCluster(image), startMoto()])
  const ec2 = await Ec2Proxy.start(moto)
  const authority = newCertificateAuthority("test")
  const { certificate, key } = authority.issue({ commonName: "issuer", hosts: [cluster.address] })
  const issuer = await startIssuer({ address: cluster.address, cert: certificate, key })
  const aws = { name: "AWS_ENDPOINT_URL", value: `http://${cluster.address}:${await cluster.expose(ec2.url)}` }
  const values = valuesOf(cluster, issuer, aws)
  await cluster.kubectl(["apply", "-f", "-"], JSON.stringify(surroundings(authority.certificate)))
  await cluster.helm(["install", "berth", chart, "--wait", "--timeout", "3m"], values).catch(async (cause: unknown) => {
    const said = [...cluster.kubelet.faults, await cluster.kubelet.output()].join("\n")
    throw new Error(`the release does not become ready:\n${said}`, { cause })
  })
  const installation = (await readInstallation(cluster.client, NAMESPACE))?.id ?? ""
  const folder = join(cluster.folder, "machines")
  const machines = new Machines({ moto, regions: REGIONS, installation, folder })
  const close = async (): Promise<void> => {
    await machines.close()
    await cluster.close()
    await Promise.all([issuer.close(), ec2.stop()])
    await moto.stop()
  }
  return { cluster, issuer, ec2, machines, values, ...callsOf(cluster), close }
}

/**
 * Returns the objects that exist before the installation: a namespace under the strictest Pod Security, a certificate
 * authority, and prices that put jobs without a region into the first region.
 */
function surroundings(certificate: string): object {
  const labels = { "pod-security.kubernetes.io/enforce": "restricted" }
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE, labels } }
  const metadata = { name: "own-authority", namespace: NAMESPACE }
  const authority = { apiVersion: "v1", kind: "ConfigMap", metadata, data: { "ca.crt": certificate } }
  const data = { discounts: JSON.stringify([{ cloud: "aws", region: REGIONS[0], factor: 0.01 }]) }
  const catalogue = { ...authority, metadata: { name: "berth-catalogue", namespace: NAMESPACE }, data }
  return { apiVersion: "v1", kind: "List", items: [namespace, authority, catalogue] }
}

function valuesOf({ address, facadePort, image }: Cluster, issuer: Issuer, aws: { name: string; value: string }) {
  return {
    baseDomain: BASE_DOMAIN,
    gatewayUrl: `http://${address}:${facadePort}`,
    image: { ...image.values, pullPolicy: "Never" },
    oidc: { issuer: issuer.url, audience: AUDIENCE },
    operator: { extraEnv: [aws] },
    facade: {
      service: { port: facadePort },
      requestsPerMinute: 0,
      extraEnv: [aws, { name: "NODE_EXTRA_CA_CERTS", value: "/etc/authority/ca.crt" }],
      extraVolumes: [{ name: "authority", configMap: { name: "own-authority" } }],
      extraVolumeMounts: [{ name: "authority", mountPath: "/etc/authority", readOnly: true }],
    },
  }
}

function callsOf(cluster: Cluster): Pick<Release, "call" | "json" | "apply" | "berth"> {
  const call: Release["call"] = async (caller, path, { method, body, headers, project } = {}) => {
    const answer = await request(`http://${cluster.address}:${cluster.facadePort}/1${path}`, {
      method: (method ?? (body === undefined ? "GET" : "POST")) as "GET",
      headers: {
        host: project === undefined ? BASE_DOMAIN : `${project}.${BASE_DOMAIN}`,
        "content-type": "application/json",
        ...headers,
        ...("key" in caller ? { "x-service-api-key": caller.key } : { authorization: `Bearer ${caller.token}` }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    return { status: answer.statusCode, text: await answer.body.text() }
  }
  const json = async <T>(...args: Parameters<Release["call"]>): Promise<T> => {
    const { status, text } = await call(...args)
    expect(status, `${args[1]}: ${text}`).toBeLessThan(300)
    return JSON.parse(text === "" ? "null" : text) as T
  }
  return {
    call,
    json,
    apply: async (...items) => {
      const list = JSON.stringify({ apiVersion: "v1", kind: "List", items })
      await cluster.kubectl(["apply", "--server-side", "-f", "-"], list)
    },
    berth: (...args) => promisify(execFile)(process.execPath, [join(ROOT, "src", "main.ts"), ...args]),
  }
}
