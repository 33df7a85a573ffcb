import { execFileSync, spawnSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { load } from "js-yaml"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import {
  AGENT_DATA_DIR,
  renderCloudInit,
  USER_DATA_LIMIT_BYTES,
  userDataOf,
  type VmSystem,
} from "../../src/agent/cloud-init.ts"
import { bootConfig, failureOnConsole, parseUserData } from "../../src/agent/messages.ts"
import type { BootConfig } from "../../src/agent/protocol.ts"
import type { StoredLaunch } from "../../src/apis/launch.ts"
import { ANNOTATIONS } from "../../src/apis/meta.ts"
import type { Offer } from "../../src/apis/offer.ts"
import { withDeletion } from "../../src/cloud/azure/user-data.ts"
import { decide as decideJob } from "../../src/controllers/job/decide.ts"
import { JOB_DEFAULTS } from "../../src/placement/settings.ts"
import { INSTALLATION, jobOf } from "../controllers/builders.ts"
import { eventually } from "../kube/fixtures.ts"
import { needing } from "../needing.ts"
import { isNightly } from "../nightly.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway, testFixture } from "./harness.ts"
import {
  type BootOptions,
  bootVm,
  missingForVms,
  NODE,
  PUT_ENGINE_BACK,
  prepareVms,
  removeVms,
  type Vm,
  type VmHost,
} from "./vm.ts"

const CONFIG: BootConfig = {
  launch: "5cbd7f6e-93a4-4b0c-8a55-1f0e3a8e0a10-1",
  gatewayUrl: "https://berth.example",
  gatewayCa: "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n",
  bootstrapToken: "DvmoDwVnd9Bt6LFyj4Zphyahs_L99zXM9kYX-roiPHA",
  lifetimeSeconds: 90_000,
}
const CLOUDS = ["aws", "gcp", "azure"]

const agentImage = "registry.example/berth:0.1.0"

const systems: [name: string, system: VmSystem, gpu: boolean, fraction?: boolean][] = [
  ["ecs", "ecs", false],
  ["ecs-gpu", "ecs", true],
  ["ecs-gpu-fraction", "ecs", true, true],
  ["ubuntu", "ubuntu", false],
  ["ubuntu-gpu", "ubuntu", true],
  ["cos", "cos", false],
]

describe.each(systems)("cloud-init for %s", (name, system, gpu, fraction = false) => {
  const text = renderCloudInit(CONFIG, { system, agentImage, gpu, fraction })

  it("matches the golden file", async () => {
    await expect(text).toMatchFileSnapshot(`golden/cloud-init.${name}.yaml`)
  })

  it("starts the dead-man timer before anything else, and contains the agent's config", () => {
    const document = load(text) as {
      bootcmd: string[][]
      write_files: { path: string; content: string; permissions: string }[]
    }
    expect(document.bootcmd[0]?.[2]).toContain("berth-dead-man.timer")
    const config = document.write_files.find(({ path }) => path === `${AGENT_DATA_DIR}/user-data.json`)
    expect(config?.permissions).toBe("0600")
    expect(parseUserData(config?.content ?? "")).toEqual({ ...CONFIG, image: agentImage })
  })
})

describe("rendering cloud-init", () => {
  it("rejects an image name that a shell would interpret", () => {
    for (const image of ["a b", "a;reboot", "$(reboot)", "", "-v", "a'b", "a%n", "a\nb"]) {
      expect(() => renderCloudInit(CONFIG, { system: "ecs", agentImage: image })).toThrow(/image reference/)
    }
  })

  it("keeps any text of the gateway's CA", () => {
    const gatewayCa = "# : - {x} 'y' \"z\" \\n\n\ttab\r\n  é ☃ #cloud-config\nEND\n"
    const text = renderCloudInit({ ...CONFIG, gatewayCa }, { system: "ecs", agentImage })
    const { write_files: files } = load(text) as { write_files: { content: string }[] }
    expect(parseUserData(files[0]?.content ?? "").gatewayCa).toBe(gatewayCa)
  })

  it("stays below EC2's limit for user data, or throws an error that names the part that is too large", () => {
    const cas = (bytes: number) => ({ ...CONFIG, gatewayCa: "x".repeat(bytes) })
    const most = renderCloudInit(cas(11_000), { system: "ubuntu", agentImage })
    expect(Buffer.byteLength(most)).toBeLessThanOrEqual(USER_DATA_LIMIT_BYTES)
    expect(() => renderCloudInit(cas(14_000), { system: "ecs", agentImage })).toThrow(/16384: gatewayCa has 14000/)
  })
})

const hasCloudInit = spawnSync("cloud-init", ["--version"]).status === 0
const cloudInit = needing(hasCloudInit ? undefined : "cloud-init is missing (Debian's package cloud-init)")

cloudInit.describe("cloud-init's own schema", () => {
  const folder = mkdtempSync(join(tmpdir(), "berth-cloud-init-"))
  afterAll(() => rmSync(folder, { recursive: true }))

  function check(text: string): string {
    const path = join(folder, "user-data")
    writeFileSync(path, text)
    return execFileSync("cloud-init", ["schema", "--config-file", path], { encoding: "utf8", stdio: "pipe" })
  }

  it.each(systems)("accepts the rendered document for %s", (_, system, gpu) => {
    expect(check(renderCloudInit(CONFIG, { system, agentImage, gpu }))).toMatch(/^Valid/)
  })

  it("rejects an invalid document", () => {
    expect(() => check("#cloud-config\nruncmd: 1\n")).toThrow(/runcmd/)
  })
})

function withoutGpu({ gpu: _, ...offer }: Offer): Offer {
  return offer
}

/** Engine's program on a machine whose CPU can't run the image. */
const FOREIGN_IMAGE = `case "$*" in
*--version*) echo "exec /nodejs/bin/node: exec format error" >&2; exit 255;;
esac`

const engines = needing(hasCloudInit ? await missingForVms() : "cloud-init is missing (Debian's package cloud-init)")

engines.describe("a VM that boots with it", () => {
  const fixture = testFixture("cloud-init")
  let gateway: TestGateway
  let host: VmHost
  const vms: Vm[] = []

  beforeAll(async () => {
    host = await prepareVms()
    gateway = await startGateway(fixture, { host: host.address })
  }, 300_000)
  afterAll(async () => {
    await removeVms(vms)
    await gateway.close()
  })

  async function boot(launch: StoredLaunch, image: string): Promise<Vm> {
    const spec = { ...launch.spec, gatewayUrl: gateway.url }
    const config = bootConfig({ metadata: launch.metadata, spec }, BOOTSTRAP_KEY)
    const vm = await bootVm(renderCloudInit(config, { system: "ecs", agentImage: image }))
    vms.push(vm)
    return vm
  }

  /** Boots the VM of a launch on a public cloud with exactly the user data that the cloud would receive. */
  async function bootOn(launch: StoredLaunch, options: BootOptions): Promise<Vm> {
    const { metadata, spec } = launch
    const { url: gatewayUrl } = gateway
    const userData = userDataOf({ metadata, spec: { ...spec, gatewayUrl, agentImage: host.agentImage } }, BOOTSTRAP_KEY)
    const vm = await bootVm(spec.offer.cloud === "azure" ? withDeletion(userData) : userData, options)
    vms.push(vm)
    return vm
  }

  const offerOn = (cloud: string, changes: Partial<Offer> = {}): Offer => ({
    ...{ cloud, region: "here", instanceType: "gpus", architecture: "amd64", provisioning: "onDemand" },
    ...{ cpu: 4, memoryGib: 16, hourlyPriceUsd: 1, minimumBilledSeconds: 60 },
    gpu: { model: "T4", count: 1, vramGib: 16 },
    ...changes,
  })

  /** Returns phase, reason and message that the job of this Launch has now. */
  function jobMessage(launch: StoredLaunch): object {
    const { namespace, uid } = launch.spec.job
    const job = jobOf({ metadata: { namespace, uid, annotations: { [ANNOTATIONS.recordedUid]: uid } } })
    const market = () => Promise.reject(new Error("no place is looked for")) as never
    const { status } = decideJob(
      job,
      { launches: [launch], installation: INSTALLATION, market },
      new Date(),
      JOB_DEFAULTS,
    )
    return { phase: status.phase, reason: status.reason, message: status.message }
  }

  it.each(isNightly ? CLOUDS : ["gcp"])(
    "reports a missing engine to its job and powers off: a GPU job on %s",
    async (cloud) => {
      const launch = await fixture.launch({ image: "none" }, { offer: offerOn(cloud) })
      const vm = await bootOn(launch, { engine: false })
      await eventually("the VM is off", async () => !(await vm.isOn()), 120)
      const told = await fixture.read(launch)
      expect(told.status?.agent).toBeUndefined()
      expect(jobMessage(told)).toEqual({
        phase: "queued",
        reason: "BootFailed",
        message: expect.stringMatching(
          /^launch 1: its VM cannot run containers \(EngineUnavailable\): no Docker engine.*docker: not found.*; Berth tries the next machine after this VM is deleted$/,
        ),
      })
    },
    300_000,
  )

  if (isNightly) {
    it.each(CLOUDS)(
      "reports a missing GPU to its job and powers off: a GPU job on %s",
      async (cloud) => {
        const launch = await fixture.launch({ image: "none" }, { offer: offerOn(cloud) })
        const vm = await bootOn(launch, { programs: { "usr/bin/nvidia-smi": "echo No devices were found" } })
        await eventually("the VM is off", async () => !(await vm.isOn()), 120)
        expect(jobMessage(await fixture.read(launch))).toMatchObject({
          reason: "BootFailed",
          message: expect.stringMatching(/\(GPUUnavailable\): .*No devices were found/),
        })
      },
      300_000,
    )

    it("reports an agent image of another architecture to its job and powers off", async () => {
      const launch = await fixture.launch({ image: "none" }, { offer: withoutGpu(offerOn("aws")) })
      const vm = await bootOn(launch, { programs: { "usr/bin/docker": FOREIGN_IMAGE } })
      await eventually("the VM is off", async () => !(await vm.isOn()), 120)
      expect(jobMessage(await fixture.read(launch))).toMatchObject({
        reason: "BootFailed",
        message: expect.stringMatching(/\(AgentUnavailable\): .* machine: exec .*node: exec format error/),
      })
    }, 300_000)

    const FULL = ["failed to register layer: write /x: no space left on device", "DiskFull"] as const
    const FOREIGN = [
      "no matching manifest for linux/arm64/v8 in the manifest list entries",
      "AgentUnavailable",
    ] as const
    it.each([FOREIGN, FULL])(
      "reports a final error of a pull to its job and powers off: %s",
      async (error, reason) => {
        const launch = await fixture.launch({ image: "none" }, { offer: withoutGpu(offerOn("aws")) })
        const docker = `case $1 in pull|image) echo "Error response from daemon: ${error}" >&2; exit 1;; esac`
        const vm = await bootOn(launch, { programs: { "usr/bin/docker": docker } })
        await eventually("the VM is off", async () => !(await vm.isOn()), 120)
        expect(jobMessage(await fixture.read(launch))).toMatchObject({
          reason: "BootFailed",
          message: expect.stringContaining(`(${reason})`),
        })
        expect(jobMessage(await fixture.read(launch))).toMatchObject({ message: expect.stringContaining(error) })
      },
      300_000,
    )

    it("installs the engine by apt on Ubuntu with retries and NVIDIA's runtime, then runs its job", async () => {
      const programs = {
        "usr/bin/nvidia-smi": "echo 'GPU 0: Tesla T4 (UUID: GPU-1)'",
        "usr/bin/nvidia-ctk": 'echo "$*" >> /var/lib/berth/asked',
        "usr/bin/apt-get": `echo "$*" >> /var/lib/berth/asked
case "$*" in *install*) ;; *) exit 0;; esac
[ "$(grep -c install /var/lib/berth/asked)" -gt 1 ] || exit 100
${PUT_ENGINE_BACK}`,
      }
      // With a GPU in the offer the agent would request one for the container. This machine has none.
      const launch = await fixture.launch({ image: host.agentImage, command: [NODE, "-e", "console.log('ran')"] })
      const config = bootConfig(
        { metadata: launch.metadata, spec: { ...launch.spec, gatewayUrl: gateway.url } },
        BOOTSTRAP_KEY,
      )
      const options = { system: "ubuntu", agentImage: host.agentImage, gpu: true } as const
      const vm = await bootVm(renderCloudInit(config, options), { engine: false, programs })
      vms.push(vm)
      await eventually("the VM is off", async () => !(await vm.isOn()), 180)
      const { status } = await fixture.read(launch)
      expect(status?.bootFailure).toBeUndefined()
      expect(status?.agent?.finish).toMatchObject({ reason: "Succeeded" })
      const asked = (await vm.file("/var/lib/berth/asked"))?.trim().split("\n") ?? []
      expect(asked.filter((line) => line.includes("install"))).toHaveLength(2)
      expect(asked.at(-1)).toBe("runtime configure --runtime=docker")
    }, 300_000)
  }

  if (isNightly) {
    it("says on its console that it finds no way to the gateway, and powers off", async () => {
      const launch = await fixture.launch({ image: "none" })
      const spec = { ...launch.spec, gatewayUrl: "https://berth.invalid" }
      const config = bootConfig({ metadata: launch.metadata, spec }, BOOTSTRAP_KEY)
      const text = renderCloudInit(config, { system: "ecs", agentImage: host.agentImage })
      const hurried = text.replace("ready 30 reach", "ready 2 reach").replace("ready 270 reach", "ready 5 reach")
      const vm = await bootVm(hurried)
      vms.push(vm)
      await eventually("the VM is off", async () => !(await vm.isOn()), 120)
      const console = await vm.console()
      expect(failureOnConsole(console), console).toEqual({
        reason: "GatewayUnreachable",
        message: expect.stringMatching(/^the VM found no way to the gateway: curl: .*resolve host: berth.invalid/),
      })
      expect(console).not.toContain(config.bootstrapToken)
      expect((await fixture.read(launch)).status?.agent).toBeUndefined()
    }, 300_000)
  }

  it("runs its job once it finds a way to the gateway, and withdraws its line on the console", async () => {
    const launch = await fixture.launch({ image: host.agentImage, command: [NODE, "-e", "console.log('ran')"] })
    const config = bootConfig(
      { metadata: launch.metadata, spec: { ...launch.spec, gatewayUrl: gateway.url } },
      BOOTSTRAP_KEY,
    )
    const text = renderCloudInit(config, { system: "ecs", agentImage: host.agentImage })
    const curl = `[ -e /run/tried ] || { touch /run/tried; echo "curl: (7) Failed to connect" >&2; exit 7; }
exec /usr/bin/curl "$@"`
    const vm = await bootVm(text.replace("ready 30 reach", "ready 0 reach"), {
      programs: { "usr/local/bin/curl": curl },
    })
    vms.push(vm)
    await eventually("the VM is off", async () => !(await vm.isOn()), 120)
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded" })
    const console = await vm.console()
    expect(console).toContain('berth-boot {"reason":"GatewayUnreachable"')
    expect(failureOnConsole(console), console).toBeUndefined()
  }, 300_000)

  it("runs its job without access to the metadata service, and powers off", async () => {
    const script = `for (const url of ["http://169.254.169.254", "${gateway.url}/nothing"])
      await fetch(url).then((answer) => console.log(answer.status), (error) => console.log(error.cause.code))`
    const run = { image: host.agentImage, command: [NODE, "--input-type=module", "-e", script] }
    const launch = await fixture.launch(run)
    const vm = await boot(launch, host.agentImage)
    expect(await vm.metadata()).toBe("metadata")
    await eventually("the VM is off", async () => !(await vm.isOn()), 120)
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
    expect((await gateway.logOf(launch)).toString()).toBe("ECONNREFUSED\n404\n")
    expect(await vm.cloudInitErrors()).toEqual([])
  }, 300_000)

  it("powers off at the end of its lifetime, without an agent and after a reboot", async () => {
    const launch = await fixture.launch({ image: "none" }, { lifetimeSeconds: 30 })
    const vm = await boot(launch, "registry.invalid/none")
    await eventually("the deadline is kept", async () => (await vm.file("/var/lib/berth/deadline")) !== undefined)
    const deadline = Number(await vm.file("/var/lib/berth/deadline"))
    await vm.reboot()
    await eventually("the VM is off", async () => !(await vm.isOn()), 120)
    expect(Number(await vm.file("/var/lib/berth/deadline"))).toBe(deadline)
    expect(Date.now() / 1000).toBeGreaterThanOrEqual(deadline)
    expect((await fixture.agentOf(launch))?.registrationTime).toBeUndefined()
  }, 300_000)
})
