import { execFile, execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { load } from "js-yaml"
import { GenericContainer, Wait } from "testcontainers"
import { afterAll, beforeAll, expect, it } from "vitest"
import { AGENT_DATA_DIR, renderCloudInit } from "../../src/clouds/cloud-init.ts"
import { buildImages, containersOf, docker, type TestImages } from "../agent/images.ts"
import { engineVolumes, VOLUMES_WAIT_MS } from "../agent/mounts.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { needing } from "../needing.ts"
import { buildBerthImage, missingForImage } from "./berth-image.ts"

const missing = (await missingForImage()) ?? (process.getuid?.() === 0 ? undefined : "only root may mount")
const image = needing(missing)

/** Options of Kubernetes' restricted Pod Security, as in the chart: read-only, no capabilities, not root. */
const RESTRICTED = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]

/** Container with the same options. The suite removes it itself, so testcontainers' own remover is not needed. */
class RestrictedContainer extends GenericContainer {
  constructor(name: string) {
    super(name)
    this.hostConfig.ReadonlyRootfs = true
    this.withDroppedCapabilities("ALL").withSecurityOpt("no-new-privileges")
  }
}
process.env["TESTCONTAINERS_RYUK_DISABLED"] = "true"

image.describe("Berth's image", () => {
  const tag = randomBytes(4).toString("hex")
  const [image, agentImage, volumesImage] = ["image", "agent", "volumes"].map(
    (name) => `berth-test/${name}:${tag}`,
  ) as [string, string, string]
  const fixture = launchFixture("image")
  let gateway: TestGateway
  let images: TestImages
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-image-"))
    // Makes mounts propagate from the folder, as for everything that systemd mounts.
    execFileSync("mount", ["--bind", folder, folder])
    execFileSync("mount", ["--make-shared", folder])
    await buildBerthImage(image)
    await buildBerthImage(agentImage, "agent")
    await buildBerthImage(volumesImage, "volumes")
    images = await buildImages()
    // A folder in the driver's container.
    const local = { remote: { type: "local" }, path: "/results" }
    gateway = await startGateway(fixture, { parts: { buckets: async () => ({ out: local }) } })
  }, 600_000)
  afterAll(async () => {
    await gateway?.close()
    await images?.remove()
    execFileSync("umount", ["--recursive", folder])
    await rm(folder, { recursive: true })
    // Keeps the parent images: another suite may be building on them.
    for (const one of [image, agentImage, volumesImage])
      await docker.getImage(one).remove({ force: true, noprune: true })
  })

  async function run(...args: string[]): Promise<string> {
    return (await promisify(execFile)("docker", ["run", "--rm", ...args])).stdout
  }

  /** Makes a key as in docs/install.md: the manifest is for the API server, the value for the reader of stderr. */
  async function makesKey(program: string, ...args: string[]): Promise<void> {
    const key = ["key", "--name", "me", "--role", "admin", "--namespace", "first"]
    const { stdout, stderr } = await promisify(execFile)(program, [...args, ...key])
    expect(load(stdout)).toMatchObject({ kind: "ApiKey", metadata: { name: "me", namespace: "first" } })
    expect(stderr).toMatch(/^berth_\S+$/m)
  }

  it("runs the program as a non-root user with a read-only file system", async () => {
    const { version } = JSON.parse(await readFile(join(import.meta.dirname, "../../package.json"), "utf8")) as {
      version: string
    }
    const { Config } = await docker.getImage(image).inspect()
    const Entrypoint = ["/nodejs/bin/node", "--max-semi-space-size=8", "/berth/berth.mjs"]
    expect(Config).toMatchObject({ User: "65532:65532", Entrypoint })
    expect((await run(...RESTRICTED, image, "--version")).trim()).toBe(version)
    expect((await run(...RESTRICTED, agentImage, "--version")).trim()).toBe(version)
    expect(await run(...RESTRICTED, volumesImage, "version")).toMatch(/^rclone v/)
    expect(await run(...RESTRICTED, image, "operator", "--help")).toContain("--agent-image")
    // The tools of `berth debug`.
    expect(await run(...RESTRICTED, "--entrypoint", "/berth/busybox", agentImage, "--list")).toMatch(
      /^nc\n(.*\n)*sh\n/m,
    )
    const script = "console.log(process.getuid(), fs.existsSync('/bin/sh'), fs.existsSync('/usr/bin/sh'))"
    for (const one of [image, agentImage])
      expect(await run("--entrypoint", "/nodejs/bin/node", one, "-e", script)).toBe("65532 false false\n")
  })

  it("serves as façade and shuts down in order", async () => {
    const kubeconfig = join(folder, "kubeconfig")
    await writeFile(kubeconfig, await readFile(kubeconfigPath()), { mode: 0o644 })
    const facade = await new RestrictedContainer(image)
      .withCommand(["facade", "--kubeconfig", "/kubeconfig", "--logs-dir", "/logs", "--port", "0"])
      .withNetworkMode("host")
      .withTmpFs({ "/logs": "uid=65532" })
      .withBindMounts([{ source: kubeconfig, target: "/kubeconfig", mode: "ro" }])
      .withWaitStrategy(Wait.forLogMessage(/"url":"/))
      .withAutoRemove(false)
      .start()
    const container = docker.getContainer(facade.getId())
    try {
      const output = (await container.logs({ stdout: true, stderr: true })).toString()
      const [, url] = /"url":"([^"]+)"/.exec(output) ?? []
      for (const path of ["/livez", "/1/docs", "/1/docs/docs.js", "/1/docs/swagger-ui-bundle.js"])
        expect((await fetch(`${url}${path}`)).status, path).toBe(200)
      await makesKey("docker", "exec", facade.getId(), "/nodejs/bin/node", "/berth/berth.mjs")
      await makesKey("docker", "run", "--rm", ...RESTRICTED, image)
      await facade.stop({ timeout: 60_000, remove: false })
      expect((await container.inspect()).State.ExitCode).toBe(0)
    } finally {
      await container.remove({ force: true })
    }
  })

  it("runs the agent as VMs start it, and mounts buckets from the image for volumes", {
    timeout: VOLUMES_WAIT_MS,
  }, async () => {
    using _volumes = await engineVolumes()
    const script = "echo ahoy > /out/greeting; cat /out/greeting"
    const launch = await fixture.launch({
      image: images.tools,
      command: ["sh", "-c", script],
      volumes: { out: { bucket: "bucket", mountPath: "/out", prefix: "results" } },
    })
    const userData = { ...(JSON.parse(gateway.userData(launch)) as object), volumesImage }
    await writeFile(join(folder, "user-data.json"), JSON.stringify(userData), { mode: 0o600 })
    await promisify(execFile)("sh", ["-c", startOfAgent(agentImage, folder, `berth-agent-${launch.metadata.name}`)])
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
    expect((await gateway.logOf(launch)).toString()).toBe("ahoy\n")
    expect(await containersOf(launch)).toEqual([])
  })
})

/** Returns the command line of the unit that cloud-init writes, for another folder. */
function startOfAgent(agentImage: string, dataDir: string, name: string): string {
  const config = { launch: "1", gatewayUrl: "http://127.0.0.1:1", bootstrapToken: "t", lifetimeSeconds: 60 }
  const { write_files: files } = load(
    renderCloudInit(config, { system: "ecs", agentImage, bootDeadlineSeconds: 300 }),
  ) as {
    write_files: { content: string }[]
  }
  const command = files.map(({ content }) => /^until (docker run .*) 2> said; do$/m.exec(content)?.[1]).join("")
  if (command === "") throw new Error("the user data starts no agent")
  return command.replaceAll(AGENT_DATA_DIR, dataDir).replace("berth-agent", name).replace("$image", agentImage)
}
