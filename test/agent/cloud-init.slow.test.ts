import { execFile, execFileSync, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { load } from "js-yaml"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { withDeletion } from "../../src/clouds/azure/user-data.ts"
import {
  AGENT_DATA_DIR,
  buildUserData,
  type CloudInitOptions,
  renderCloudInit,
  USER_DATA_LIMIT_BYTES,
} from "../../src/clouds/cloud-init.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { bootConfig, failureOnConsole, parseUserData } from "../../src/core/protocol/messages.ts"
import type { BootConfig } from "../../src/core/protocol/protocol.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { decide as decideJob } from "../../src/operator/job/decide.ts"
import { jobOf, seenOf } from "../harness/builders.ts"
import { until } from "../harness/eventually.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { needing } from "../needing.ts"
import { isNightly } from "../nightly.ts"
import { AptMirrors } from "./apt-mirror.ts"
import { COMPLETED, type Gpus, IN_PROGRESS, nvidiaSmi } from "./nvidia-smi.ts"
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

/** Boot deadline of most VMs with this user data, seconds. */
const bootDeadlineSeconds = 300

const systems: [name: string, options: Pick<CloudInitOptions, "system" | "gpus" | "jobImage">][] = [
  ["ecs", { system: "ecs", jobImage: "docker.io/library/python:3.13" }],
  ["ecs-gpu", { system: "ecs", gpus: 8 }],
  ["ecs-gpu-fraction", { system: "ecs", gpus: 0.125 }],
  ["ubuntu", { system: "ubuntu" }],
  ["ubuntu-gpu", { system: "ubuntu", gpus: 1 }],
  ["cos", { system: "cos" }],
]

describe.each(systems)("cloud-init for %s", (name, options) => {
  const text = renderCloudInit(CONFIG, { ...options, agentImage, bootDeadlineSeconds })

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
    expect(parseUserData(config?.content ?? "")).toEqual(CONFIG)
  })
})

describe("rendering cloud-init", () => {
  it("rejects an image name that a shell would interpret", () => {
    for (const image of ["a b", "a;reboot", "$(reboot)", "", "-v", "a'b", "a%n", "a\nb"]) {
      expect(() => renderCloudInit(CONFIG, { system: "ecs", agentImage: image, bootDeadlineSeconds })).toThrow(
        /image reference/,
      )
    }
  })

  it("keeps any text of the gateway's CA", () => {
    const gatewayCa = "# : - {x} 'y' \"z\" \\n\n\ttab\r\n  é ☃ #cloud-config\nEND\n"
    const text = renderCloudInit({ ...CONFIG, gatewayCa }, { system: "ecs", agentImage, bootDeadlineSeconds })
    const { write_files: files } = load(text) as { write_files: { content: string }[] }
    expect(parseUserData(files[0]?.content ?? "").gatewayCa).toBe(gatewayCa)
  })

  it("stays below EC2's limit for user data, or throws an error that names the part that is too large", () => {
    const cas = (bytes: number) => ({ ...CONFIG, gatewayCa: "x".repeat(bytes) })
    const most = renderCloudInit(cas(7800), { system: "ubuntu", agentImage, gpus: 8, bootDeadlineSeconds })
    expect(Buffer.byteLength(most)).toBeLessThanOrEqual(USER_DATA_LIMIT_BYTES)
    expect(() => renderCloudInit(cas(14_000), { system: "ecs", agentImage, bootDeadlineSeconds })).toThrow(
      /16384: gatewayCa has 14000/,
    )
  })
})

/** Engine's program on a machine whose CPU can't run the image. */
const FOREIGN_IMAGE = `case "$1" in run) echo "exec /nodejs/bin/node: exec format error" >&2; exit 255;; esac`

/** Engine that has no image. Its pull of the agent's image ends once the job's image is pulled too. */
const ENGINE = `case "$*" in
image*) exit 1;;
pull*registry.invalid*) echo "Error response from daemon: denied" >&2; exit 1;;
pull*berth*) echo "a3ed95caeb02: Pulling fs layer"; until grep -q "pull.*job" $LOG; do sleep 0.1; done;;
esac`

describe("the start script", () => {
  const job = { system: "ecs", agentImage, jobImage: "registry.example/job:1", bootDeadlineSeconds } as const
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "berth-start-"))
  })
  afterEach(() => rmSync(folder, { recursive: true }))

  /**
   * Runs the script of a VM with these stand-ins for its programs. Returns the failure that it reports, and the calls of the
   * engine and of systemctl.
   */
  async function start(options: CloudInitOptions, programs: Record<string, string>) {
    const { write_files: files } = load(renderCloudInit(CONFIG, options)) as {
      write_files: { path: string; content: string }[]
    }
    const script = (files.find(({ path }) => path.endsWith("/start.sh"))?.content ?? "")
      .replaceAll("/var/lib/berth", folder)
      .replaceAll("/proc/1/stat", "/proc/self/stat")
      .replaceAll("/proc/driver/nvidia-nvswitch", join(folder, "nvswitch"))
      .replace(/ready 120 gpus/, "ready 0 gpus")
    const all = {
      curl: `case "$*" in *"-X GET"*) ;; *) cat > "${folder}/reported";; esac`,
      docker: ENGINE,
      iptables: "",
      ip6tables: "exit 1",
      systemctl: "",
      ...programs,
    }
    mkdirSync(join(folder, "bin"))
    mkdirSync(join(folder, "agent"))
    for (const [name, text] of Object.entries(all)) {
      writeFileSync(join(folder, "bin", name), `#!/bin/sh\necho "${name} $*" >> $LOG\n${text}\n`, { mode: 0o755 })
    }
    const LOG = join(folder, "log")
    const env = { PATH: `${folder}/bin:${process.env["PATH"]}`, LOG, NVIDIA_STATE: join(folder, "nvidia") }
    await promisify(execFile)("dash", ["-c", script], { env })
    const reported = join(folder, "reported")
    return {
      failure: existsSync(reported) ? (JSON.parse(readFileSync(reported, "utf8")) as object) : undefined,
      calls: readFileSync(LOG, "utf8").split("\n"),
    }
  }

  const GPUS: [what: string, gpus: Gpus, count: number, said: string | undefined][] = [
    ["all GPUs", { count: 8 }, 8, undefined],
    ["more GPUs than ordered", { count: 8 }, 4, undefined],
    ["a part of a GPU", { count: 1 }, 0.125, undefined],
    ["a fabric that completes", { count: 8, fabric: [COMPLETED] }, 8, undefined],
    ["one GPU without a fabric", { count: 1, fabric: [IN_PROGRESS] }, 1, undefined],
    ["no GPU", { count: 0 }, 8, "nvidia-smi showed 0 of 8 GPUs: No devices were found"],
    [
      "a lost GPU",
      { count: 8, lost: 1 },
      8,
      "nvidia-smi showed 7 of 8 GPUs: Unable to determine the device handle for GPU0000:65:00.0: Unknown Error",
    ],
    ["a fabric in progress", { count: 8, fabric: [IN_PROGRESS] }, 8, "the fabric of the GPUs is In Progress"],
    [
      "a broken fabric",
      { count: 8, fabric: [["Completed", "Unknown Error"]] },
      8,
      "the fabric of the GPUs is Unknown Error",
    ],
  ]
  it.each(GPUS)("judges %s by the words of nvidia-smi", async (_, shown, gpus, said) => {
    const { failure, calls } = await start({ ...job, gpus }, { "nvidia-smi": nvidiaSmi(shown) })
    const reason = "GPUUnavailable"
    const expected = said && { reason, message: `the GPUs were not ready in 0 s: ${said}` }
    expect(failure).toEqual(expected)
    expect(calls.some((call) => call.startsWith("docker run"))).toBe(said === undefined)
    expect(calls).toContain("systemctl poweroff --no-block")
  })

  it.each([
    ["inactive", "echo inactive; exit 3", { message: expect.stringContaining("nvidia-fabricmanager is inactive") }],
    ["active", "echo active", undefined],
  ])("needs the fabric manager on NVSwitches whose GPUs show no fabric: %s", async (_, systemctl, failure) => {
    mkdirSync(join(folder, "nvswitch", "devices", "0000:c4:00.0"), { recursive: true })
    const programs = { "nvidia-smi": nvidiaSmi({ count: 8 }), systemctl }
    const found = (await start({ ...job, gpus: 8 }, programs)).failure
    if (failure === undefined) expect(found).toBeUndefined()
    else expect(found).toMatchObject(failure)
  })

  it("pulls the job's image beside the agent's, whose layers come first", async () => {
    const { failure, calls } = await start(job, {})
    expect(failure).toBeUndefined()
    const texts = ["docker pull registry.example/berth", "docker pull -q registry.example/job", "docker run"]
    const order = texts.map((text) => calls.findIndex((call) => call.startsWith(text)))
    expect(order.every((at) => at >= 0)).toBe(true)
    expect(order).toEqual([...order].sort((a, b) => a - b))
  })

  it("leaves a private image to the agent", async () => {
    const { failure, calls } = await start({ ...job, jobImage: "registry.invalid/job:1" }, {})
    expect(failure).toBeUndefined()
    expect(calls.some((call) => call.startsWith("docker run"))).toBe(true)
  })

  it("leaves an image name that a shell would interpret to the agent", () => {
    for (const jobImage of ["a b", "a;reboot", "$(reboot)", "", "-v", "a'b", "a\nb"]) {
      const { jobImage: _, ...without } = job
      expect(renderCloudInit(CONFIG, { ...job, jobImage })).toBe(renderCloudInit(CONFIG, without))
    }
  })

  it("reports which limit an engine has exceeded, before the boot deadline", async () => {
    const docker = 'echo "Cannot connect to the Docker daemon" >&2; exit 1'
    const { failure } = await start({ ...job, bootDeadlineSeconds: 2 }, { docker })
    expect(failure).toEqual({
      reason: "EngineUnavailable",
      message: "no Docker engine answered in the 1 s that the VM has to start: Cannot connect to the Docker daemon",
    })
  })

  it("gives up a registry that never answers", async () => {
    const { failure } = await start(
      { ...job, bootDeadlineSeconds: 2 },
      { docker: "case $1 in pull) sleep 600;; esac; [ $1 = version ]" },
    )
    expect(failure).toEqual({
      reason: "AgentUnavailable",
      message: "the agent image was not pulled in the 1 s that the VM has to start: no answer",
    })
  })

  it("starts the agent again after an error of the engine, and reports an image of another architecture", async () => {
    const once = `case $1 in run) [ -e "${folder}/tried" ] || { touch "${folder}/tried"; exit 125; };; esac`
    expect((await start(job, { docker: once })).failure).toBeUndefined()
    rmSync(folder, { recursive: true })
    mkdirSync(folder)
    expect((await start(job, { docker: FOREIGN_IMAGE })).failure).toEqual({
      reason: "AgentUnavailable",
      message: expect.stringMatching(/^the agent image does not run on this \w+ machine: exec .*exec format error$/),
    })
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

  it.each(systems)("accepts the rendered document for %s", (_, options) => {
    expect(check(renderCloudInit(CONFIG, { ...options, agentImage, bootDeadlineSeconds }))).toMatch(/^Valid/)
  })

  it("rejects an invalid document", () => {
    expect(() => check("#cloud-config\nruncmd: 1\n")).toThrow(/runcmd/)
  })
})

function withoutGpu({ gpu: _, ...offer }: Offer): Offer {
  return offer
}

/** File in which a VM on Azure notes the system's state at each request for its deletion. */
const ASKED = "/var/lib/berth/deletions"

/** curl on Azure: the cloud refuses the VM's first requests for its own deletion. Other requests are real. */
const azureCurl = (refusals: number): string => `case "$*" in
*identity/oauth2/token*) echo '{"access_token":"a.b-c"}';;
*compute/resourceId*) printf /subscriptions/s/virtualMachines/berth-1;;
*https://management.azure.com/*)
  systemctl is-system-running >> ${ASKED}
  [ $(wc -l < ${ASKED}) -gt ${refusals} ] || exit 22;;
*) exec /usr/bin/curl "$@";;
esac`

const engines = needing(hasCloudInit ? await missingForVms() : "cloud-init is missing (Debian's package cloud-init)")

engines.describe("a VM that boots with cloud-init", () => {
  const fixture = launchFixture("cloud-init")
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

  async function boot(
    launch: StoredLaunch,
    image: string,
    options: Partial<CloudInitOptions> = {},
    programs: BootOptions["programs"] = {},
  ): Promise<Vm> {
    const spec = { ...launch.spec, gatewayUrl: gateway.url }
    const config = bootConfig({ metadata: launch.metadata, spec }, BOOTSTRAP_KEY)
    const system = { system: "ecs", agentImage: image, bootDeadlineSeconds } as const
    const vm = await bootVm(renderCloudInit(config, { ...system, ...options }), { programs })
    vms.push(vm)
    return vm
  }

  /** Boots the VM of a launch on a public cloud with exactly the user data that the cloud would receive. */
  async function bootOn(launch: StoredLaunch, options: BootOptions): Promise<Vm> {
    const { metadata, spec } = launch
    const { url: gatewayUrl } = gateway
    const userData = buildUserData(
      { metadata, spec: { ...spec, gatewayUrl, agentImage: host.agentImage } },
      BOOTSTRAP_KEY,
    )
    const isAzure = spec.offer.cloud === "azure"
    const curl = { "usr/local/bin/curl": azureCurl(isNightly ? 2 : 0) }
    const programs = { ...(isAzure && curl), ...options.programs }
    const vm = await bootVm(isAzure ? withDeletion(userData) : userData, { ...options, programs })
    vms.push(vm)
    return vm
  }

  /** Checks that a VM on Azure has requested its deletion until it was accepted, before it powered off. */
  async function expectDeleted(vm: Vm, launch: StoredLaunch): Promise<void> {
    if (launch.spec.offer.cloud !== "azure") return
    const states = (await vm.file(ASKED))?.trim().split("\n") ?? []
    // The last request is that of the shutdown.
    expect(states.length).toBe(isNightly ? 4 : 2)
    expect(states.slice(0, -1)).not.toContain("stopping")
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
    const { status } = decideJob(job, { launches: [launch], ...seenOf(job), market }, new Date(), JOB_DEFAULTS)
    return { phase: status.phase, reason: status.reason, message: status.message }
  }

  it.each(isNightly ? CLOUDS : ["azure"])(
    "reports a missing engine to its job and powers off: a GPU job on %s",
    async (cloud) => {
      // With a deadline of 20 s a VM waits for 10 s.
      const launch = await fixture.launch({ image: "none" }, { offer: offerOn(cloud), bootDeadlineSeconds: 20 })
      const vm = await bootOn(launch, { engine: false })
      await until("the VM is off", async () => !(await vm.isOn()), 120)
      const told = await fixture.read(launch)
      expect(told.status?.agent).toBeUndefined()
      expect(jobMessage(told)).toEqual({
        phase: "queued",
        reason: "BootFailed",
        message: expect.stringMatching(
          /^launch 1: its VM cannot run containers \(EngineUnavailable\): (no Docker engine answered: .*docker|apt downloaded no Docker engine in the 10 s that the VM has to start: E: ).*; Berth tries the next machine after this VM is deleted$/,
        ),
      })
      await expectDeleted(vm, launch)
    },
    300_000,
  )

  if (isNightly) {
    const bad: [words: string, gpus: Gpus][] = [
      [
        "nvidia-smi showed 7 of 8 GPUs: Unable to determine the device handle for GPU0000:65:00.0",
        { count: 8, lost: 1 },
      ],
      ["the fabric of the GPUs is In Progress", { count: 8, fabric: [IN_PROGRESS] }],
    ]
    it.each(CLOUDS.flatMap((cloud) => bad.map(([words, gpus]) => ({ cloud, words, gpus }))))(
      "reports GPUs that are not ready to its job and powers off: on $cloud, $words",
      async ({ cloud, words, gpus }) => {
        const eight = { gpu: { model: "H100", count: 8, vramGib: 80 } }
        // With a deadline of 40 s a VM waits for 20 s.
        const spec = { offer: offerOn(cloud, eight), bootDeadlineSeconds: 40 }
        const launch = await fixture.launch({ image: "none" }, spec)
        const vm = await bootOn(launch, { programs: { "usr/bin/nvidia-smi": nvidiaSmi(gpus) } })
        await until("the VM is off", async () => !(await vm.isOn()), 120)
        expect(jobMessage(await fixture.read(launch))).toMatchObject({
          reason: "BootFailed",
          message: expect.stringContaining(
            `(GPUUnavailable): the GPUs were not ready in the 20 s that the VM has to start: ${words}`,
          ),
        })
        await expectDeleted(vm, launch)
      },
      300_000,
    )

    it("waits for GPUs that need a minute", async () => {
      const gpus = nvidiaSmi({ count: 8, initSeconds: 60, fabric: [IN_PROGRESS, IN_PROGRESS, COMPLETED] })
      const launch = await fixture.launch({ image: host.agentImage, command: [NODE, "-e", "console.log('ran')"] })
      const vm = await boot(
        launch,
        host.agentImage,
        { gpus: 8, bootDeadlineSeconds: 900 },
        { "usr/bin/nvidia-smi": gpus },
      )
      await until("the VM is off", async () => !(await vm.isOn()), 180)
      expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded" })
    }, 300_000)

    it("reports an agent image of another architecture to its job and powers off", async () => {
      const launch = await fixture.launch({ image: "none" }, { offer: withoutGpu(offerOn("aws")) })
      const vm = await bootOn(launch, { programs: { "usr/bin/docker": FOREIGN_IMAGE } })
      await until("the VM is off", async () => !(await vm.isOn()), 120)
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
        await until("the VM is off", async () => !(await vm.isOn()), 120)
        expect(jobMessage(await fixture.read(launch))).toMatchObject({
          reason: "BootFailed",
          message: expect.stringContaining(`(${reason})`),
        })
        expect(jobMessage(await fixture.read(launch))).toMatchObject({ message: expect.stringContaining(error) })
      },
      300_000,
    )

    describe("a VM whose mirror of Ubuntu's packages stalls", () => {
      let mirrors: AptMirrors
      beforeAll(async () => {
        const packages = { "docker.io": PUT_ENGINE_BACK, iptables: "", pigz: "" }
        mirrors = await AptMirrors.start(host.address, packages)
      })
      afterAll(() => mirrors.close())

      /** Boots Ubuntu with GPUs and without an engine. */
      async function bootUbuntu(launch: StoredLaunch, deadline: number): Promise<Vm> {
        const programs = {
          "usr/bin/nvidia-smi": nvidiaSmi({ count: 1 }),
          "usr/bin/nvidia-ctk": 'echo "$*" >> /var/lib/berth/asked',
        }
        const spec = { ...launch.spec, gatewayUrl: gateway.url }
        const config = bootConfig({ metadata: launch.metadata, spec }, BOOTSTRAP_KEY)
        const options = { system: "ubuntu", agentImage: host.agentImage, gpus: 1 } as const
        const text = renderCloudInit(config, { ...options, bootDeadlineSeconds: deadline })
        const vm = await bootVm(text, { engine: false, programs, ...mirrors.vm })
        vms.push(vm)
        return vm
      }

      it("installs the engine from another one with NVIDIA's runtime, then runs its job", async () => {
        // With a GPU in the offer the agent would request one for the container. This machine has none.
        const launch = await fixture.launch({ image: host.agentImage, command: [NODE, "-e", "console.log('ran')"] })
        const vm = await bootUbuntu(launch, 480)
        await until("the VM is off", async () => !(await vm.isOn()), 240)
        const { status } = await fixture.read(launch)
        expect(status?.bootFailure).toBeUndefined()
        expect(status?.agent?.finish).toMatchObject({ reason: "Succeeded" })
        expect(await vm.file("/var/lib/berth/asked")).toBe("runtime configure --runtime=docker\n")
      }, 300_000)

      it("reports apt's words if the other one stalls too, and powers off", async () => {
        mirrors.stalled = true
        const launch = await fixture.launch({ image: "none" })
        const vm = await bootUbuntu(launch, 480)
        await until("the VM is off", async () => !(await vm.isOn()), 240)
        expect((await fixture.read(launch)).status?.bootFailure).toMatchObject({
          reason: "EngineUnavailable",
          message: expect.stringMatching(
            /^apt downloaded no Docker engine in 120 s: .*Failed to fetch http:..archive.ubuntu.com.*Connection (failed|timed out)/,
          ),
        })
      }, 300_000)
    })
  }

  if (isNightly) {
    it("says on its console that it finds no way to the gateway, and powers off", async () => {
      const launch = await fixture.launch({ image: "none" })
      const spec = { ...launch.spec, gatewayUrl: "https://berth.invalid" }
      const config = bootConfig({ metadata: launch.metadata, spec }, BOOTSTRAP_KEY)
      const text = renderCloudInit(config, { system: "ecs", agentImage: host.agentImage, bootDeadlineSeconds })
      const hurried = text.replace("ready 30 reach", "ready 2 reach").replace("ready 270 reach", "ready 5 reach")
      const vm = await bootVm(hurried)
      vms.push(vm)
      await until("the VM is off", async () => !(await vm.isOn()), 120)
      const console = await vm.console()
      expect(failureOnConsole(console), console).toEqual({
        reason: "GatewayUnreachable",
        message: expect.stringMatching(
          /^the VM found no way to the gateway in 5 s: curl: .*resolve host: berth.invalid/,
        ),
      })
      expect(console).not.toContain(config.bootstrapToken)
      expect((await fixture.read(launch)).status?.agent).toBeUndefined()
    }, 300_000)
  }

  it("runs its job without access to the metadata service once it finds a way to the gateway and its GPUs, withdraws its line on the console, and powers off", async () => {
    const script = `for (const url of ["http://169.254.169.254", "${gateway.url}/nothing"])
      await fetch(url).then((answer) => console.log(answer.status), (error) => console.log(error.cause.code))`
    const launch = await fixture.launch({
      image: host.agentImage,
      command: [NODE, "--input-type=module", "-e", script],
    })
    const config = bootConfig(
      { metadata: launch.metadata, spec: { ...launch.spec, gatewayUrl: gateway.url } },
      BOOTSTRAP_KEY,
    )
    const options = { system: "ecs", agentImage: host.agentImage, gpus: 8, bootDeadlineSeconds } as const
    const text = renderCloudInit(config, options)
    const gpus = nvidiaSmi({ count: 8, initSeconds: 4, fabric: [IN_PROGRESS, COMPLETED] })
    const curl = `[ -e /run/tried ] || { touch /run/tried; echo "curl: (7) Failed to connect" >&2; exit 7; }
exec /usr/bin/curl "$@"`
    const vm = await bootVm(text.replace("ready 30 reach", "ready 0 reach"), {
      programs: { "usr/local/bin/curl": curl, "usr/bin/nvidia-smi": gpus },
    })
    vms.push(vm)
    expect(await vm.metadata()).toBe("metadata")
    await until("the VM is off", async () => !(await vm.isOn()), 120)
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
    expect((await gateway.logOf(launch)).toString()).toBe("ECONNREFUSED\n404\n")
    expect(await vm.cloudInitErrors()).toEqual([])
    const console = await vm.console()
    expect(console).toContain('berth-boot {"reason":"GatewayUnreachable"')
    expect(failureOnConsole(console), console).toBeUndefined()
  }, 300_000)

  if (isNightly) {
    it("powers off at the end of its lifetime, without an agent and after a reboot", async () => {
      const launch = await fixture.launch({ image: "none" }, { lifetimeSeconds: 30 })
      const vm = await boot(launch, "registry.invalid/none")
      await until("the deadline is kept", async () => (await vm.file("/var/lib/berth/deadline")) !== undefined)
      const deadline = Number(await vm.file("/var/lib/berth/deadline"))
      await vm.reboot()
      await until("the VM is off", async () => !(await vm.isOn()), 120)
      expect(Number(await vm.file("/var/lib/berth/deadline"))).toBe(deadline)
      expect(Date.now() / 1000).toBeGreaterThanOrEqual(deadline)
      expect((await fixture.agentOf(launch))?.registrationTime).toBeUndefined()
    }, 300_000)
  }
})
