import { execFile } from "node:child_process"
import { join } from "node:path"
import { compileCache } from "../../dev/compile-cache.ts"
import { LocalCloud } from "../../dev/local-cloud/local.ts"
import { LOCAL_REGION, localOffers } from "../../dev/local-cloud/offers.ts"
import type { MachineJoin, MachineRecord } from "../../src/api/resources/machines/schema.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { awsBuckets } from "../../src/clouds/aws/bucket-credentials.ts"
import { createClouds } from "../../src/clouds/provider.ts"
import { connect } from "../../src/connect.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { OWN_CLOUD } from "../../src/core/apis/machine.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { docker } from "../agent/images.ts"
import { buildRcloneImage } from "../agent/mounts.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { agentProgram } from "../harness/agent-program.ts"
import { openWhole } from "../harness/closing.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { until } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import { IsolatedHost } from "../harness/isolated-host.ts"
import { Programs } from "../harness/programs.ts"
import { startMoto } from "../moto.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const CLI = join(ROOT, "src", "cli", "main.ts")

/** Time for each wait, seconds. */
const PATIENCE_SECONDS = 120

const KEY = { access_key_id: "AKIAEXAMPLE", secret_access_key: "secret" }

/** Moto finds the service of a request by its signature, and checks none. */
const S3_HEADERS = {
  authorization: "AWS4-HMAC-SHA256 Credential=root/20260101/us-east-1/s3/aws4_request, Signature=none",
}

/** End of a command of `berth`. */
export interface Ended {
  code: number | null
  out: string
  err: string
}

/** A whole Berth with the local cloud, S3, and hosts that can join as machines. */
export interface OwnMachines {
  berth: Installation
  /** Calls the REST API, and returns the answer's JSON. @throws Error for a status from 400 on */
  rest<Answer>(method: string, path: string, body?: object): Promise<Answer>
  /** Runs `berth`, as the project's administrator does. */
  command(cwd: string, ...args: string[]): Promise<Ended>
  /** Creates a machine, and lets a host join as it. */
  join(name: string, settings?: object): Promise<IsolatedHost>
  /** Starts the agent of a host again. */
  restartAgent(host: IsolatedHost): void
  /** Resolves when a machine has this status. */
  untilMachine(name: string, status: MachineRecord["status"], seconds?: number): Promise<void>
  log(job: string): Promise<string>
  createBucket(name: string): Promise<void>
  /** Returns the text of an object, or S3's error. */
  object(bucket: string, key: string): Promise<string>
  close(): Promise<void>
}

export function startOwnMachines(name: string): Promise<OwnMachines> {
  return openWhole((closing) => ownMachines(name, closing))
}

async function ownMachines(name: string, closing: AsyncDisposableStack): Promise<OwnMachines> {
  const runtime = await containerRuntime()
  const volumesImage = `berth-test/rclone-own:${process.pid}`
  await buildRcloneImage(volumesImage)
  closing.defer(() => docker.getImage(volumesImage).remove({ force: true, noprune: true }))
  const moto = closing.adopt(await startMoto(), (server) => server.stop())
  const berth = closing.adopt(
    await Installation.create({ name, kubeconfig: kubeconfigPath(), runtime }),
    (installation) => installation.close(),
  )
  const gatewayUrl = await startPrograms(berth, { motoUrl: moto.url, volumesImage }, closing)
  const s3 = (method: string, path: string) => fetch(`${moto.url}/${path}`, { method, headers: S3_HEADERS })
  await connectBuckets(berth)
  const ports = [gatewayUrl, moto.url].map((url) => Number(new URL(url).port))
  const call = (path: string, init: RequestInit = {}) =>
    fetch(`${gatewayUrl}/1${path}`, {
      ...init,
      headers: { "X-Service-Api-Key": berth.apiKey, "Content-Type": "application/json" },
    })
  const rest = async <Answer>(method: string, path: string, body?: object): Promise<Answer> => {
    const answer = await call(path, { method, ...(body && { body: JSON.stringify(body) }) })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    return JSON.parse(text === "" ? "null" : text) as Answer
  }
  const join = async (machine: string, settings: object = {}): Promise<IsolatedHost> => {
    const images = [volumesImage, berth.runtime.image]
    const host = closing.adopt(await IsolatedHost.create({ ports, images }), (booted) => booted.remove())
    const made = await rest<{ join: MachineJoin }>("POST", "/machines", { name: machine, ...settings })
    host.startAgent({ gatewayUrl, token: made.join.token })
    return host
  }
  return {
    ...{ berth, rest, join },
    command: (cwd, ...args) => {
      const env = { PATH: process.env["PATH"], HOME: cwd, BERTH_URL: gatewayUrl, BERTH_API_KEY: berth.apiKey }
      const { promise, resolve } = Promise.withResolvers<Ended>()
      const child = execFile(process.execPath, [CLI, ...args], { cwd, env }, (_error, out, err) =>
        resolve({ code: child.exitCode, out, err }),
      )
      return promise
    },
    restartAgent: (host) => void host.startAgent({ gatewayUrl }),
    untilMachine: async (machine, status, seconds = PATIENCE_SECONDS) => {
      const isIt = async () => (await rest<MachineRecord>("GET", `/machines/${machine}`)).status === status
      await until(`${machine} is ${status}`, isIt, seconds)
    },
    log: async (job) => await (await call(`/jobs/${job}/logs`)).text(),
    createBucket: async (bucket) => {
      const { ok, status } = await s3("PUT", bucket)
      if (!ok) throw new Error(`bucket ${bucket} was not created: ${status}`)
    },
    object: async (bucket, key) => await (await s3("GET", `${bucket}/${key}`)).text(),
    close: () => closing.disposeAsync(),
  }
}

/** Starts operator and façade in this process. Returns the façade's URL. */
async function startPrograms(
  berth: Installation,
  { motoUrl, volumesImage }: { motoUrl: string; volumesImage: string },
  closing: AsyncDisposableStack,
): Promise<string> {
  const { name: runtime, dockerSocket } = berth.runtime
  const cloud = new LocalCloud({
    dataDir: berth.vmsDir,
    agentCommand: [process.execPath, ...agentProgram(), "--runtime", runtime],
    agentEnvironment: compileCache(),
    region: LOCAL_REGION,
    clock: systemClock,
    ...(dockerSocket !== undefined && { dockerSocket }),
    onError: (error) => console.error(error),
  })
  closing.defer(() => cloud.close())
  const account = { cloud: "local", region: LOCAL_REGION }
  const aws = {
    account: awsAccounts({ endpoint: motoUrl }),
    region: openAws({ clock: systemClock }),
    buckets: awsBuckets({ endpoint: motoUrl }),
  }
  const programs = new Programs({
    ...{ systemNamespace: berth.systemNamespace, watchNamespace: berth.namespace },
    clientOf: async () => connect({ kubeconfig: kubeconfigPath() }),
    market: { offers: fixedOffers(localOffers()), providers: { aws }, ownAccounts: [account] },
  })
  closing.defer(() => programs.stop())
  const { url } = await programs.startFacade(
    { requestsPerMinute: 0, defaultProject: berth.namespace, logsDir: join(berth.folder, "own-logs") },
    { clouds: ["local", OWN_CLOUD] },
  )
  const clouds = createClouds({ local: async () => cloud })
  await programs.startOperator({ gatewayUrl: url, volumesImage }, { clouds, observeSeconds: 0.5 })
  return url
}

/** Creates a connection to moto's buckets, and waits until it is verified. */
async function connectBuckets({ client, namespace }: Installation): Promise<void> {
  const metadata = { name: "aws", namespace }
  await client.create(SECRETS, { metadata, type: "berth.dev/connection", stringData: KEY } as unknown as Secret)
  const spec = { type: "aws", credentialsSecretRef: { name: "aws" } }
  await client.create(CONNECTIONS, { metadata, spec } as StoredConnection)
  const isReady = async () => {
    const { status } = await client.get(CONNECTIONS, metadata)
    return findCondition(status?.conditions, "Ready")?.status === "True"
  }
  await until("the connection is verified", isReady, PATIENCE_SECONDS)
}

/** Returns where a Launch ran: the name of an own machine, or the cloud. */
export function placeOf({ spec: { offer } }: StoredLaunch): string {
  return offer.cloud === OWN_CLOUD ? offer.instanceType : offer.cloud
}

/** Returns what a host's engine has beside images, without the network that all jobs of it use. */
export async function leftOn(host: IsolatedHost): Promise<string[]> {
  const containers = await host.docker.listContainers({ all: true })
  const { Volumes } = await host.docker.listVolumes()
  const networks = await host.docker.listNetworks({ filters: { type: ["custom"] } })
  return [
    ...containers.flatMap(({ Names }) => Names),
    ...(Volumes ?? []).map(({ Name }) => Name),
    ...networks.map(({ Name }) => Name).filter((name) => name !== "berth-jobs"),
  ]
}
