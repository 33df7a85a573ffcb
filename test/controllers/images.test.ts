import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect, it } from "vitest"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { offerOf } from "../harness/builders.ts"
import { eventually } from "../harness/eventually.ts"
import type { Stoppable } from "../harness/programs.ts"
import { ProjectHarness } from "../harness/project.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, putImage, startTokenRegistry, type TestRegistry } from "../registry.ts"

/**
 * Facts that are known before a VM is bought: the architectures of the job's image, in a real registry, that there is such an
 * image, and the job's Secrets.
 */

const registry = needing(missingForRegistry())

const PUSHER = { username: "pusher", password: "of-a-test" }
const KEY = "AKIAIOSFODNN7EXAMPLE"

registry.describe("the operator", () => {
  let registry: TestRegistry
  let operator: Stoppable | undefined
  afterAll(() => registry?.stop())
  const berth = new ProjectHarness("images", {
    offers: fixedOffers([
      offerOf({ cloud: "aws", instanceType: "graviton", architecture: "arm64", hourlyPriceUsd: 0.5 }),
      offerOf({ cloud: "aws", instanceType: "xeon", hourlyPriceUsd: 0.6 }),
    ]),
    architectures: ["amd64"],
  })
  const { admin, namespace } = berth

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
    await operate()
    const secret_access_key = randomBytes(8).toString("hex")
    berth.accounts.issue("account", secret_access_key)
    const sealedCredentials = await berth.seal("main", { access_key_id: KEY, secret_access_key })
    await berth.createConnection("main", { type: "aws", sealedCredentials })
  })

  /** Starts the operator, or restarts it. */
  async function operate(): Promise<void> {
    await operator?.stop()
    const login = async (fields: Readonly<Record<string, string>>) => ({
      username: fields["access_key_id"] ?? "",
      password: "of-the-account",
    })
    const registries = { serves: (host: string) => host === registry.host, login }
    operator = await berth.programs.startOperator(
      { agentImage: `${registry.host}/public/agent:1` },
      {
        providers: { aws: { ...berth.accounts.provider, registries } },
        askRegistries: registry.send,
        // A busy machine may need longer than the default to answer.
        images: { limitSeconds: 120 },
      },
    )
  }

  it("gives a job machines that the agent's image supports, and waits if the job's image needs others", async () => {
    const create = (image: string) => {
      const spec = { image: `${registry.host}/team/${image}:1` }
      return berth.submit(`one-${image}`, spec)
    }
    await Promise.all([create("both"), create("arm")])
    await eventually(async () => {
      const { status } = await berth.job("one-both")
      expect(status).toMatchObject({ phase: "booting", placement: { offer: { instanceType: "xeon" } } })
      expect(status?.placement?.reason).toMatch(/Berth's agent image is for amd64 only/)
    })
    await eventually(async () => {
      const { status } = await berth.job("one-arm")
      expect(status).toMatchObject({ phase: "queued", reason: "AgentImageMismatch" })
      expect(status?.message).toMatch(/image is for arm64, but Berth's agent image is for amd64 only/)
    })
    // The operator corrects the status, and looks the image up again after its interval.
    const platforms = ["linux/amd64", "linux/arm64"]
    await putImage(registry, { repository: "public/agent", tag: "1", platforms, user: PUSHER })
    await operate()
    await eventually(async () => {
      const { status } = await berth.job("one-arm")
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
    await berth.submit(image, spec)
    await eventually(async () => {
      const { status } = await berth.job(image)
      expect(status).toMatchObject({ phase: "booting", placement: { offer: { instanceType } } })
      expect(status?.placement?.reason).toMatch(why)
    })
  })

  it("fails a job whose image the registry does not have, and buys no VM", async () => {
    const spec = { image: `${registry.host}/team/nothing:1` }
    await berth.submit("nothing", spec)
    await eventually(async () => {
      const { status } = await berth.job("nothing")
      expect(status).toMatchObject({ phase: "failed", reason: "ImagePullFailed" })
      expect(status?.message).toMatch(/^image .*nothing:1 can't be pulled: registry .*HTTP 404: manifest unknown/)
    })
    expect(await berth.launchOf("nothing")).toBeUndefined()
  })

  it("buys no VM for a job until all values of its secretEnv are there", async () => {
    const secretEnv = { TOKEN: { secret: "late", key: "token" } }
    const spec = { image: `${registry.host}/team/intel:1`, secretEnv }
    await berth.submit("secretive", spec)
    const waits = (message: RegExp) =>
      eventually(async () => {
        const { status } = await berth.job("secretive")
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
    const launches = async () => (await berth.launches()).filter(({ spec: { job } }) => job.name === "secretive")
    expect(await launches()).toEqual([])
    await admin.patch(SECRETS, { namespace, name: "late" }, { merge: { data: { token: btoa("s3cret") } } }, {})
    await eventually(async () => expect(await launches()).toHaveLength(1))
  })

  it("gives a job's VM a disk of three times the image's size, in whole GiB", async () => {
    const spec = { image: `${registry.host}/team/large:1` }
    await berth.submit("large", spec)
    await eventually(async () => {
      expect((await berth.launchOf("large"))?.spec.disk).toEqual({ requiredGib: 1 })
    })
  })
})
