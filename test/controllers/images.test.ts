import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { cloudsOf } from "../../src/clouds/provider.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { CONNECTIONS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/kinds.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { sealCredentials } from "../../src/core/sealing/credentials.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { startOperator } from "../../src/operator/main.ts"
import { eventually } from "../cloud/eventually.ts"
import { confirmedProject } from "../confirmed-project.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { clientOf, makeSystemNamespace } from "../facade/machine-users.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, putImage, startTokenRegistry, type TestRegistry } from "../registry.ts"
import { offerOf } from "./builders.ts"
import { SimProvider } from "./sim-provider.ts"

/**
 * Facts that are known before a VM is bought: the architectures of the job's image, in a real registry, that there is such an
 * image, and the job's Secrets.
 */

const registry = needing(missingForRegistry())

const PUSHER = { username: "pusher", password: "of-a-test" }
const KEY = "AKIAIOSFODNN7EXAMPLE"

registry.describe("the operator", () => {
  const systemNamespace = testNamespace("images-system")
  const namespace = testNamespace("images")
  const project = `p-${randomBytes(4).toString("hex")}`
  const admin = new KubeClient(kubeConfig())
  const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(admin, systemNamespace)))
  const sim = new SimProvider(systemClock)
  let stop = new AbortController()
  let registry: TestRegistry
  let client: KubeClient
  let operator: Running | undefined

  beforeAll(async () => {
    registry = await startTokenRegistry({
      pusher: { password: PUSHER.password, pushes: true },
      [KEY]: { password: "of-the-account", pulls: ["team/"] },
    })
    const images = { both: ["linux/amd64", "linux/arm64"], intel: ["linux/amd64"], arm: ["linux/arm64"] }
    for (const [name, platforms] of Object.entries(images))
      await putImage(registry, { repository: `team/${name}`, tag: "1", platforms, user: PUSHER })
    const large = { repository: "team/large", tag: "1", platforms: ["linux/amd64"], layerBytes: 2 ** 24 }
    await putImage(registry, { ...large, user: PUSHER })
    // In the form that `docker build` and `docker push` produce.
    await putImage(registry, { repository: "public/agent", tag: "1", platforms: ["linux/amd64"], user: PUSHER })
    await installBase(admin, AbortSignal.timeout(120_000))
    await makeSystemNamespace(admin, systemNamespace)
    await confirmedProject(admin, { name: project, organization: "o", namespace })
    client = await clientOf("berth-operator")
    // The API server applies new rights after a delay.
    await eventually(() => client.list(LAUNCHES, { namespace: systemNamespace }))
    await operate()
    await connect()
  })
  afterAll(async () => {
    for (const { metadata } of (await admin.list(JOBS, { namespace })).items) await admin.delete(JOBS, metadata)
    await eventually(async () => expect((await admin.list(JOBS, { namespace })).items).toEqual([]))
    stop.abort()
    await operator?.ended
    for (const { metadata, spec } of (await admin.list(LAUNCHES, { namespace: systemNamespace })).items)
      if (spec.job.namespace === namespace) await admin.delete(LAUNCHES, metadata)
    await admin.delete(PROJECTS, { name: project })
    await Promise.all([client.close(), admin.close(), registry.stop()])
  })

  /** Starts the operator, or restarts it. */
  async function operate(): Promise<void> {
    stop.abort()
    await operator?.ended
    stop = new AbortController()
    const offers = fixedOffers([
      offerOf({ cloud: "aws", instanceType: "graviton", architecture: "arm64", hourlyPriceUsd: 0.5 }),
      offerOf({ cloud: "aws", instanceType: "xeon", hourlyPriceUsd: 0.6 }),
    ])
    const login = async (fields: Readonly<Record<string, string>>) => ({
      username: fields["access_key_id"] ?? "",
      password: "of-the-account",
    })
    const registries = { serves: (host: string) => host === registry.host, login }
    operator = await startOperator(
      {
        ...{ systemNamespace, watchNamespace: namespace, gatewayUrl: "https://gateway.test" },
        agentImage: `${registry.host}/public/agent:1`,
      },
      {
        client,
        clouds: cloudsOf({}),
        providers: { aws: { ...sim.provider, registries } },
        offers,
        ownAccounts: [],
        architectures: ["amd64"],
        askRegistries: registry.send,
        // A busy machine may need longer than the default to answer.
        images: { limitSeconds: 120 },
        observeSeconds: 0.1,
        logger: createLogger({ level: "silent", name: "test" }),
      },
      stop.signal,
    )
  }

  async function connect(): Promise<void> {
    const secret_access_key = randomBytes(8).toString("hex")
    sim.issue("account", secret_access_key)
    const fields = { access_key_id: KEY, secret_access_key }
    const sealedCredentials = await sealCredentials(sealer, { type: "aws", fields }, { project, name: "main" })
    const connection = { metadata: { name: "main", namespace }, spec: { type: "aws", sealedCredentials } }
    await admin.create(CONNECTIONS, connection as StoredConnection)
  }

  it("gives a job machines that the agent's image supports, and waits if the job's image needs others", async () => {
    const create = (image: string) => {
      const spec = { image: `${registry.host}/team/${image}:1` }
      return admin.create(JOBS, { metadata: { name: `one-${image}`, namespace }, spec } as StoredJob)
    }
    await Promise.all([create("both"), create("arm")])
    await eventually(async () => {
      const { status } = await admin.get(JOBS, { namespace, name: "one-both" })
      expect(status).toMatchObject({ phase: "booting", placement: { offer: { instanceType: "xeon" } } })
      expect(status?.placement?.reason).toMatch(/Berth's agent image is for amd64 only/)
    })
    await eventually(async () => {
      const { status } = await admin.get(JOBS, { namespace, name: "one-arm" })
      expect(status).toMatchObject({ phase: "queued", reason: "AgentImageMismatch" })
      expect(status?.message).toMatch(/image is for arm64, but Berth's agent image is for amd64 only/)
    })
    // The operator corrects the status, and looks the image up again after its interval.
    const platforms = ["linux/amd64", "linux/arm64"]
    await putImage(registry, { repository: "public/agent", tag: "1", platforms, user: PUSHER })
    await operate()
    await eventually(async () => {
      const { status } = await admin.get(JOBS, { namespace, name: "one-arm" })
      expect(status).toMatchObject({ phase: "booting", placement: { offer: { instanceType: "graviton" } } })
    })
  })

  it.each([
    ["both", "graviton", /graviton/],
    ["intel", "xeon", /the image is for amd64 only/],
    ["arm", "graviton", /the image is for arm64 only/],
    ["theirs", "xeon", /the image is assumed to be for amd64 .*no such image, or no access to it/],
  ])("gives a job with the image %s a %s machine, and shows the reason", async (image, instanceType, why) => {
    const spec = { image: `${registry.host}/${image === "theirs" ? "others" : "team"}/${image}:1` }
    await admin.create(JOBS, { metadata: { name: image, namespace }, spec } as StoredJob)
    await eventually(async () => {
      const { status } = await admin.get(JOBS, { namespace, name: image })
      expect(status).toMatchObject({ phase: "booting", placement: { offer: { instanceType } } })
      expect(status?.placement?.reason).toMatch(why)
    })
  })

  it("fails a job whose image the registry does not have, and buys no VM", async () => {
    const spec = { image: `${registry.host}/team/nothing:1` }
    await admin.create(JOBS, { metadata: { name: "nothing", namespace }, spec } as StoredJob)
    await eventually(async () => {
      const { status } = await admin.get(JOBS, { namespace, name: "nothing" })
      expect(status).toMatchObject({ phase: "failed", reason: "ImagePullFailed" })
      expect(status?.message).toMatch(/^image .*nothing:1 can't be pulled: registry .*HTTP 404: manifest unknown/)
    })
    const { items } = await admin.list(LAUNCHES, { namespace: systemNamespace })
    expect(items.filter(({ spec: { job } }) => job.namespace === namespace && job.name === "nothing")).toEqual([])
  })

  it("buys no VM for a job until all values of its secretEnv are there", async () => {
    const secretEnv = { TOKEN: { secret: "late", key: "token" } }
    const spec = { image: `${registry.host}/team/intel:1`, secretEnv }
    await admin.create(JOBS, { metadata: { name: "secretive", namespace }, spec } as unknown as StoredJob)
    const waits = (message: RegExp) =>
      eventually(async () => {
        const { status } = await admin.get(JOBS, { namespace, name: "secretive" })
        expect(status).toMatchObject({ phase: "queued", reason: "SecretMissing" })
        expect(status?.message).toMatch(message)
      })
    const put = (type: string, data: Record<string, string>) =>
      admin.create(SECRETS, { metadata: { name: "late", namespace }, type, data } as Secret)
    await waits(/^secretEnv TOKEN: Secret late of type berth.dev\/env is not in the job's namespace; create it$/)
    await put("berth.dev/env", { other: btoa("x") })
    await waits(/Secret late has no key token; add it/)
    await admin.patch(SECRETS, { namespace, name: "late" }, { merge: { data: { token: btoa("a\0b") } } }, {})
    await waits(/the value of key token can't be a variable/)
    const launches = async () =>
      (await admin.list(LAUNCHES, { namespace: systemNamespace })).items.filter(
        ({ spec: { job } }) => job.name === "secretive",
      )
    expect(await launches()).toEqual([])
    await admin.patch(SECRETS, { namespace, name: "late" }, { merge: { data: { token: btoa("s3cret") } } }, {})
    await eventually(async () => expect(await launches()).toHaveLength(1))
  })

  it("gives a job's VM a disk of three times the image's size, in whole GiB", async () => {
    const spec = { image: `${registry.host}/team/large:1` }
    await admin.create(JOBS, { metadata: { name: "large", namespace }, spec } as StoredJob)
    await eventually(async () => {
      const { items } = await admin.list(LAUNCHES, { namespace: systemNamespace })
      const launch = items.find((each) => each.spec.job.namespace === namespace && each.spec.job.name === "large")
      expect(launch?.spec.disk).toEqual({ requiredGib: 1 })
    })
  })
})
