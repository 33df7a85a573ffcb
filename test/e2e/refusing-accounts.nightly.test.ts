import { randomBytes } from "node:crypto"
import { afterAll, afterEach, beforeAll, expect, vi } from "vitest"
import { installBase } from "../../dev/base.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { openAzure } from "../../src/clouds/azure/azure.ts"
import { openGcp } from "../../src/clouds/gcp/gcp.ts"
import { seriesOf } from "../../src/clouds/machines/machines.ts"
import type { Providers, RegionOpener } from "../../src/clouds/provider.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { ConnectionSpec, ConnectionType, StoredConnection } from "../../src/core/apis/connection.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
import type { JobSpec, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ensureInstallation } from "../../src/core/identity/installation.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { CONNECTIONS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { sealCredentials } from "../../src/core/sealing/credentials.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { LiveCatalogue } from "../../src/market/catalogue/live.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { ArmServer } from "../cloud/arm-server.ts"
import { documentedActions } from "../cloud/aws-policy.ts"
import { makeSubnet, removeDefaultVpc } from "../cloud/ec2-console.ts"
import { type AwsRequest, Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { GceServer } from "../cloud/gce-server.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { eventually } from "../harness/eventually.ts"
import { clientOf, makeSystemNamespace, rightsArrive } from "../harness/machine-users.ts"
import { Programs } from "../harness/programs.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { isNightly } from "../nightly.ts"

const { describe, it } = needing(missingTool("moto"))

const GCP_PROJECT = "berth-test"

const catalogue = buildOffers(readPriceList())
const regionsOf = (cloud: string) => catalogue.regions.filter((each) => each.cloud === cloud).map(({ name }) => name)
const gce = new GceServer({
  project: GCP_PROJECT,
  regions: Object.fromEntries(regionsOf("gcp").map((region) => [region, [`${region}-a`, `${region}-b`]])),
})
const arm = new ArmServer()
const systemNamespace = testNamespace("refusing-system")
const admin = new KubeClient(kubeConfig())
const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(admin, systemNamespace)))
let moto: Moto
let proxy: Ec2Proxy

beforeAll(async () => {
  ;[moto] = await Promise.all([startMoto(), gce.start(), arm.start()])
  proxy = await Ec2Proxy.start(moto)
  // AWS' SDK reads this variable in this process, which runs the operator.
  vi.stubEnv("AWS_ENDPOINT_URL", proxy.url)
  await installBase(admin, AbortSignal.timeout(120_000))
  await makeSystemNamespace(admin, systemNamespace)
  await ensureInstallation(admin, systemNamespace)
  await rightsArrive(systemNamespace)
})
afterEach(() => {
  expect([...gce.violations, ...arm.violations, ...proxy.breaches]).toEqual([])
})
afterAll(async () => {
  await Promise.all(Tenant.all.map((tenant) => tenant.stop()))
  vi.unstubAllEnvs()
  await Promise.all([admin.close(), gce.close(), arm.close(), proxy?.stop()])
  await moto?.stop()
})

/** Returns the clouds with their own SDKs, each connected to its stand-in. */
function providers(): Providers {
  const gcp: RegionOpener = openGcp({ send: gce.send, consistencySeconds: 1 })
  const azure: RegionOpener = openAzure({ send: arm.send, lookSeconds: 0.1, consistencySeconds: 1 })
  return {
    azure: { region: azure, account: (fields) => ({ verify: () => azure(fields, "westeurope").verify() }) },
    aws: { account: awsAccounts(), region: openAws({ clock: systemClock }) },
    gcp: { region: gcp, account: (fields) => ({ verify: () => gcp(fields, "us-central1").verify() }) },
  }
}

/** A project with one connection, main, and an operator that serves it. */
class Tenant {
  static readonly all: Tenant[] = []
  readonly namespace: string
  readonly #project = `p-${randomBytes(4).toString("hex")}`
  readonly #programs: Programs

  private constructor(name: string) {
    this.namespace = testNamespace(name)
    this.#programs = new Programs({
      ...{ systemNamespace, watchNamespace: this.namespace, clientOf },
      market: { offers: new LiveCatalogue(catalogue), providers: providers() },
    })
    Tenant.all.push(this)
  }

  static async create(name: string, type: ConnectionType, fields: CredentialFields): Promise<Tenant> {
    const tenant = new Tenant(name)
    await admin.apply(NAMESPACES, { metadata: { name: tenant.namespace } })
    await confirmedProject(admin, { name: tenant.#project, organization: "o", namespace: tenant.namespace })
    await tenant.#programs.startOperator({ agentImage: "berth:test" }, { observeSeconds: 0.5 })
    const spec = { type, sealedCredentials: await tenant.#seal(type, fields) }
    await admin.create(CONNECTIONS, {
      metadata: { name: "main", namespace: tenant.namespace },
      spec,
    } as StoredConnection)
    await tenant.isReady()
    return tenant
  }

  #seal(type: ConnectionType, fields: CredentialFields): Promise<string> {
    return sealCredentials(sealer, { type, fields }, { project: this.#project, name: "main" })
  }

  async isReady(): Promise<void> {
    await eventually(async () => expect(await this.condition("Ready")).toMatchObject({ status: "True" }))
  }

  async condition(type: string) {
    const { status } = await admin.get(CONNECTIONS, { namespace: this.namespace, name: "main" })
    return findCondition(status?.conditions, type)
  }

  async replaceKey(type: ConnectionType, fields: CredentialFields): Promise<void> {
    await this.configure({ sealedCredentials: await this.#seal(type, fields) })
  }

  /** Changes fields of the connection. */
  async configure(spec: Partial<ConnectionSpec>): Promise<void> {
    await admin.patch(CONNECTIONS, { namespace: this.namespace, name: "main" }, { merge: { spec } })
  }

  async submit(spec: Partial<JobSpec> = {}): Promise<void> {
    const metadata = { name: "job", namespace: this.namespace }
    await admin.create(JOBS, { metadata, spec: { image: "busybox", ...spec } } as StoredJob)
  }

  async job() {
    return (await admin.get(JOBS, { namespace: this.namespace, name: "job" })).status
  }

  async launches(): Promise<StoredLaunch[]> {
    const { items } = await admin.list(LAUNCHES, { namespace: systemNamespace })
    return items.filter(({ spec }) => spec.job.namespace === this.namespace)
  }

  /** Resolves when the Job waits because everything that fits is in cooldown. */
  async waits(reason = "NoCapacity"): Promise<string> {
    return await eventually(async () => {
      const status = await this.job()
      expect(status, status?.message).toMatchObject({ phase: "queued", reason })
      return status?.message ?? ""
    }, 200)
  }

  /** Resolves when the Job has a VM. */
  async hasVm(): Promise<StoredLaunch> {
    return await eventually(async () => {
      const made = (await this.launches()).find(({ status }) => status?.vm !== undefined)
      if (made === undefined) throw new Error(`no VM: ${(await this.job())?.message}`)
      return made
    })
  }

  /** Ends the Job and its VMs, then the operator. */
  async end(): Promise<void> {
    await admin.delete(JOBS, { namespace: this.namespace, name: "job" }).catch(() => undefined)
    await eventually(async () => {
      const { items } = await admin.list(JOBS, { namespace: this.namespace })
      expect(items).toEqual([])
    })
    await this.stop()
    for (const { metadata } of await this.launches()) await admin.delete(LAUNCHES, metadata)
    await admin.delete(PROJECTS, { name: this.#project })
  }

  /** Ends the operator only. */
  stop(): Promise<void> {
    return this.#programs.stop()
  }
}

const key = (id: string): CredentialFields => ({ access_key_id: id, secret_access_key: "secret" })
const gcpKey = () => ({ gcp_project_id: GCP_PROJECT, keyfile_json: gce.keyfile })
/** Most launches that a job needs in an account that rejects all of them. */
const MOST_LAUNCHES = 40
const T4 = { resources: { gpu: { vram: "16Gi" } } }
const FREE_TYPES = ["t3.micro", "t3.small", "t4g.micro", "t4g.small", "c7i-flex.large", "m7i-flex.large"]

/** Needs whole operators, some seconds each, so the slow tier has one case of each kind. */
if (isNightly) {
  describe("a project whose account rejects VMs for a further reason", { timeout: 280_000 }, () => {
    it("learns of an AWS policy that lacks one action since its check", async () => {
      const tenant = await Tenant.create("awsrole", "aws", key("AKIAROLE"))
      proxy.policies.set(
        "AKIAROLE",
        documentedActions().filter((action) => action !== "ec2:CreateTags"),
      )
      await tenant.submit({ cloud: ["aws"] })
      expect(await tenant.waits()).toMatch(
        /connection main: .*UnauthorizedOperation: .*not authorized to perform: ec2:CreateTags.*; add the action/,
      )
      expect((await tenant.launches()).length).toBeLessThanOrEqual(MOST_LAUNCHES)
      await tenant.end()
    })

    it("learns of AWS' quotas for GPUs, on demand and spot", async () => {
      for (const quota of ["G and VT", "P"])
        for (const market of ["onDemand", "spot"]) proxy.vcpuQuotas.set(`${market} ${quota}`, 0)
      const tenant = await Tenant.create("awsquota", "aws", key("AKIAQUOTA"))
      await tenant.submit({ cloud: ["aws"], provisioning: "spotFirst", ...T4 })
      expect(await tenant.waits()).toMatch(
        /for a quota: .*(VcpuLimitExceeded|MaxSpotInstanceCountExceeded).*; request a higher quota/,
      )
      expect((await tenant.launches()).length).toBeLessThanOrEqual(MOST_LAUNCHES)
      proxy.vcpuQuotas.clear()
      await tenant.end()
    })

    it("learns of a role that lacks one permission", async () => {
      const missing = "compute.subnetworks.useExternalIp"
      gce.permissions = { has: (permission: string) => permission !== missing } as ReadonlySet<string>
      const tenant = await Tenant.create("role", "gcp", gcpKey())
      await tenant.submit({ cloud: ["gcp"] })
      expect(await tenant.waits()).toMatch(
        /connection main: .*compute\.subnetworks\.useExternalIp.*; add the permission/,
      )
      expect(await tenant.launches()).toHaveLength(1)
      gce.permissions = undefined
      await tenant.end()
    })

    it("learns of Google's organization policies on images: GPUs have another image than the rest", async () => {
      gce.constraints.add("compute.requireShieldedVm")
      const tenant = await Tenant.create("shielded", "gcp", gcpKey())
      await tenant.submit({ cloud: ["gcp"], ...T4 })
      expect(await tenant.waits()).toMatch(
        /constraints\/compute\.requireShieldedVm.*; have the organization's policy allow/,
      )
      expect(await tenant.launches()).toHaveLength(1)
      await admin.create(JOBS, {
        metadata: { name: "small", namespace: tenant.namespace },
        spec: { image: "busybox", cloud: ["gcp"] },
      } as StoredJob)
      expect((await tenant.hasVm()).spec.job.name).toBe("small")
      gce.constraints.clear()
      await admin.delete(JOBS, { namespace: tenant.namespace, name: "small" })
      await tenant.end()
    })

    it("learns of a policy on regions, and gets a VM in one that it allows", async () => {
      gce.constraints.add("gcp.resourceLocations")
      gce.allowedRegions.add("europe-west4")
      const tenant = await Tenant.create("regions", "gcp", gcpKey())
      await tenant.submit({ cloud: ["gcp"], region: ["us-central1", "us-east1", "europe-west4"] })
      expect((await tenant.hasVm()).spec.offer.region).toBe("europe-west4")
      expect((await tenant.launches()).length).toBeLessThanOrEqual(3)
      gce.constraints.clear()
      await tenant.end()
    })

    it("learns of a regional quota of one card", async () => {
      gce.regionalQuotas.set("NVIDIA_T4_GPUS", 0)
      const tenant = await Tenant.create("cards", "gcp", gcpKey())
      await tenant.submit({ cloud: ["gcp"], resources: { gpu: { model: "T4", count: 1 } } })
      expect(await tenant.waits()).toMatch(/for a quota: .*NVIDIA_T4_GPUS.*; request a higher quota/)
      expect(await tenant.launches()).toHaveLength(3)
      gce.regionalQuotas.clear()
      await tenant.end()
    })

    it("learns of an Azure role that lacks one action", async () => {
      const tenant = await Tenant.create("azurerole", "azure", arm.credentials)
      const { actions } = arm
      const missing = "Microsoft.Network/virtualNetworks/subnets/join/action"
      arm.actions = actions.filter((action) => action !== missing)
      await tenant.submit({ cloud: ["azure"] })
      expect(await tenant.waits()).toMatch(
        /connection main: AuthorizationFailed: .*subnets\/join\/action.*; add the action/,
      )
      expect(await tenant.launches()).toHaveLength(1)
      arm.actions = actions
      await tenant.end()
    })

    it("learns of Azure's quota of cores, which rests all regions after three", async () => {
      arm.regionalCores = 0
      const tenant = await Tenant.create("azurequota", "azure", arm.credentials)
      await tenant.submit({ cloud: ["azure"] })
      expect(await tenant.waits()).toMatch(/for a quota: .*Total Regional Cores quota.*; request a higher quota/)
      expect((await tenant.launches()).length).toBeLessThanOrEqual(MOST_LAUNCHES)
      arm.regionalCores = Number.POSITIVE_INFINITY
      await tenant.end()
    })

    it("avoids sizes that an Azure subscription may not use, after one rejected launch in a region", async () => {
      const types = catalogue.machines.filter(({ cloud }) => cloud === "azure").map(({ instanceType }) => instanceType)
      const allowed = (name: string) => seriesOf("azure", name) === seriesOf("azure", "Standard_E2s_v5")
      arm.skus.push(...types.map((name) => ({ name, isRestricted: !allowed(name) })))
      arm.restricts = (size) => !allowed(size)
      const tenant = await Tenant.create("azureskus", "azure", arm.credentials)
      await tenant.submit({ cloud: ["azure"], region: ["westeurope"] })
      const { spec } = await tenant.hasVm()
      expect(allowed(spec.offer.instanceType)).toBe(true)
      expect(await tenant.launches()).toHaveLength(2)
      arm.restricts = undefined
      arm.skus.length = 0
      await tenant.end()
    })

    it("learns of the quota of one Azure family, which leaves other families", async () => {
      arm.familyCores.set("standardNCAS_T4_V3Family", 0)
      const tenant = await Tenant.create("azurefamily", "azure", arm.credentials)
      await tenant.submit({ cloud: ["azure"], ...T4 })
      const { spec } = await tenant.hasVm()
      expect(spec.offer.gpu?.model).not.toBe("T4")
      expect((await tenant.launches()).length).toBeLessThanOrEqual(4)
      arm.familyCores.clear()
      await tenant.end()
    })
  })
}

describe("a project whose account rejects VMs", { timeout: 280_000 }, () => {
  it("gets a VM of a type that AWS' Free plan has, and learns the cause otherwise", async () => {
    const isPaid = ({ accessKeyId, parameters }: AwsRequest) =>
      accessKeyId === "AKIAFREE" && !FREE_TYPES.includes(parameters.get("InstanceType") ?? "")
    const message =
      "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'."
    proxy.faults.push({
      action: "RunInstances",
      when: "before",
      code: "InvalidParameterCombination",
      message,
      times: 999,
      if: isPaid,
    })
    const tenant = await Tenant.create("free", "aws", key("AKIAFREE"))
    await tenant.submit({ cloud: ["aws"] })
    const { spec } = await tenant.hasVm()
    expect(FREE_TYPES).toContain(spec.offer.instanceType)
    expect(await tenant.launches()).toHaveLength(2)
    expect(await tenant.condition("CoolingDown")).toMatchObject({
      status: "True",
      message: expect.stringMatching(
        /^aws rejected 1 launch of connection main: .*not eligible for Free Tier.*; upgrade/,
      ),
    })
    await tenant.end()
  })

  it("gets a VM on demand if an AWS policy can't create spot's role", async () => {
    const allowed = documentedActions().filter((action) => action !== "iam:CreateServiceLinkedRole")
    proxy.policies.set("AKIANOSPOT", allowed)
    const tenant = await Tenant.create("awsspot", "aws", key("AKIANOSPOT"))
    await tenant.submit({ cloud: ["aws"], provisioning: "spotFirst" })
    expect((await tenant.hasVm()).spec.offer.provisioning).toBe("onDemand")
    expect(await tenant.launches()).toHaveLength(2)
    expect((await tenant.condition("CoolingDown"))?.message).toMatch(
      /ServiceLinkedRoleCreationNotPermitted.*; Berth launches no VM on spot with this connection until .*create-service-linked-role/,
    )
    await tenant.end()
  })

  it("learns of an organization's policy against public addresses", async () => {
    gce.constraints.add("compute.vmExternalIpAccess")
    const tenant = await Tenant.create("policy", "gcp", gcpKey())
    await tenant.submit({ cloud: ["gcp"] })
    expect(await tenant.waits()).toMatch(
      /gcp rejected 1 launch of connection main: .*constraints\/compute\.vmExternalIpAccess.*; next attempt at .*; have the organization's policy allow/,
    )
    expect(await tenant.launches()).toHaveLength(1)
    gce.constraints.clear()
    // Replaced credentials end the cooldown at once.
    await tenant.replaceKey("gcp", gcpKey())
    await tenant.hasVm()
    await tenant.end()
  })

  it("learns of a quota for GPUs, which leaves machines without GPUs", async () => {
    gce.gpuQuota = 0
    const tenant = await Tenant.create("quota", "gcp", gcpKey())
    await tenant.submit({ cloud: ["gcp"], provisioning: "spotFirst", ...T4 })
    expect(await tenant.waits()).toMatch(/for a quota: .*GPUS_ALL_REGIONS.*; request a higher quota/)
    expect(await tenant.launches()).toHaveLength(1)
    expect((await tenant.condition("CoolingDown"))?.message).toMatch(/launches no VM with GPUs with this connection/)
    await admin.create(JOBS, {
      metadata: { name: "small", namespace: tenant.namespace },
      spec: { image: "busybox", cloud: ["gcp"] },
    } as StoredJob)
    expect((await tenant.hasVm()).spec.job.name).toBe("small")
    gce.gpuQuota = Number.POSITIVE_INFINITY
    await admin.delete(JOBS, { namespace: tenant.namespace, name: "small" })
    await tenant.end()
  })

  it("stops no other project with its account by a dead key", async () => {
    const red = await Tenant.create("red", "aws", key("AKIARED"))
    proxy.refusedKeys.add("AKIARED")
    await red.submit({ cloud: ["aws"] })
    const [refused] = await eventually(async () => {
      const launches = await red.launches()
      expect(launches[0]?.status?.refusal?.class).toBe("Credentials")
      return launches
    })
    await red.stop()

    const blue = await Tenant.create("blue", "aws", key("AKIABLUE"))
    await blue.submit({ cloud: ["aws"] })
    const { spec } = await blue.hasVm()
    expect(spec.account).toBe(refused?.spec.account)
    expect(spec.number).toBe(1)
    await blue.end()
  })

  it("learns of Azure's policy against public addresses, until new credentials come after an exemption", async () => {
    arm.deniesPublicAddresses = true
    const tenant = await Tenant.create("azurepolicy", "azure", arm.credentials)
    await tenant.submit({ cloud: ["azure"] })
    expect(await tenant.waits()).toMatch(
      /azure rejected 1 launch of connection main: RequestDisallowedByPolicy: .*should not have public IPs.*; next attempt at .*; exempt Berth's resource groups/,
    )
    expect(await tenant.launches()).toHaveLength(1)
    expect(await tenant.condition("CoolingDown")).toMatchObject({ status: "True" })
    expect(await tenant.condition("Ready")).toMatchObject({ status: "True" })
    arm.deniesPublicAddresses = false
    await tenant.replaceKey("azure", arm.credentials)
    await tenant.hasVm()
    await tenant.end()
  })

  it("gets a VM on demand if its Azure subscription may not use spot", async () => {
    arm.restricts = (_, isSpot) => isSpot
    const tenant = await Tenant.create("azuretrial", "azure", arm.credentials)
    await tenant.submit({ cloud: ["azure"], provisioning: "spotFirst" })
    expect((await tenant.hasVm()).spec.offer.provisioning).toBe("onDemand")
    expect((await tenant.launches()).length).toBeLessThanOrEqual(MOST_LAUNCHES)
    arm.restricts = undefined
    await tenant.end()
  })

  it("learns that default VPCs are missing that its check still saw", async () => {
    const tenant = await Tenant.create("lostvpc", "aws", key("AKIALOSTVPC"))
    await Promise.all(regionsOf("aws").map((region) => removeDefaultVpc(moto, region)))
    await tenant.submit({ cloud: ["aws"] })
    expect(await tenant.waits()).toMatch(/connection main: .*no default VPC in .*; create a default VPC/)
    const { length } = await tenant.launches()
    expect([length > 0, length <= MOST_LAUNCHES]).toEqual([true, true])
    await tenant.end()
  })

  // This test and the one before come last: they need accounts without networks.
  it("learns by a check before any launch that no region has a default VPC, until it names a subnet", async () => {
    const tenant = await Tenant.create("novpc", "aws", key("AKIANOVPC"))
    await tenant.submit({ cloud: ["aws"] })
    expect(await tenant.waits("NoConnection")).toMatch(/no default VPC in .*, or name `subnets` in the connection/)
    expect(await tenant.launches()).toHaveLength(0)
    const subnet = await makeSubnet(moto, "eu-west-1")
    await tenant.configure({ subnets: { "eu-west-1": [subnet] }, publicAddress: false })
    expect((await tenant.hasVm()).spec.offer.region).toBe("eu-west-1")
    await tenant.end()
  })
})
