import { execFile, execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { load } from "js-yaml"
import { afterAll, beforeAll, expect, it } from "vitest"
import { AGENT_DATA_DIR, renderCloudInit } from "../../src/agent/cloud-init.ts"
import { startGateway, type TestGateway, testWorld } from "../agent/harness.ts"
import { buildImages, containersOf, docker, type TestImages } from "../agent/images.ts"
import { engineVolumes, VOLUMES_WAIT_MS } from "../agent/volume-vms.ts"
import { eventually } from "../cloud/eventually.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { needing } from "../needing.ts"
import { buildBerthImage, missingForImage } from "./berth-image.ts"

const missing = (await missingForImage()) ?? (process.getuid?.() === 0 ? undefined : "only root may mount")
const image = needing(missing)

/** As Kubernetes' restricted Pod Security has it, and the chart: nothing to write to, no rights, not root. */
const RESTRICTED = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]

image.describe("Berth's image", () => {
  const image = `berth-test/image:${randomBytes(4).toString("hex")}`
  const world = testWorld("image")
  let gateway: TestGateway
  let images: TestImages
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-image-"))
    // Mounts spread from it, as from all that systemd mounts.
    execFileSync("mount", ["--bind", folder, folder])
    execFileSync("mount", ["--make-shared", folder])
    await buildBerthImage(image)
    images = await buildImages()
    // A bucket that is in rclone's memory.
    const memory = { remote: { type: "memory" }, path: "bucket/results" }
    gateway = await startGateway(world, { parts: { buckets: async () => ({ out: memory }) } })
  }, 600_000)
  afterAll(async () => {
    await gateway?.close()
    await images?.remove()
    execFileSync("umount", ["--recursive", folder])
    await rm(folder, { recursive: true })
    // What it was made from stays: another suite may be building on it.
    await docker.getImage(image).remove({ force: true, noprune: true })
  })

  async function run(...args: string[]): Promise<string> {
    return (await promisify(execFile)("docker", ["run", "--rm", ...args])).stdout
  }

  /** As docs/install.md has it: the manifest goes on to the API server, the value is for whoever looks on. */
  async function makesKey(program: string, ...args: string[]): Promise<void> {
    const key = ["key", "--name", "me", "--role", "admin", "--namespace", "first"]
    const { stdout, stderr } = await promisify(execFile)(program, [...args, ...key])
    expect(load(stdout)).toMatchObject({ kind: "ApiKey", metadata: { name: "me", namespace: "first" } })
    expect(stderr).toMatch(/^berth_\S+$/m)
  }

  it("is the program, as a user that is not root, with nothing to write to", async () => {
    const { version } = JSON.parse(await readFile(join(import.meta.dirname, "../../package.json"), "utf8")) as {
      version: string
    }
    const { Config } = await docker.getImage(image).inspect()
    expect(Config).toMatchObject({ User: "65532:65532", Entrypoint: ["/nodejs/bin/node", "/berth/berth.mjs"] })
    expect((await run(...RESTRICTED, image, "--version")).trim()).toBe(version)
    expect(await run(...RESTRICTED, image, "operator", "--help")).toContain("--agent-image")
    expect(await run("--entrypoint", "sh", image, "-c", "id -u || cat /etc/passwd")).toContain("65532")
  })

  it("serves as façade, and ends in order", async () => {
    const kubeconfig = join(folder, "kubeconfig")
    await writeFile(kubeconfig, await readFile(kubeconfigPath()), { mode: 0o644 })
    const name = `berth-test-facade-${randomBytes(4).toString("hex")}`
    const started = ["--detach", "--name", name, "--network", "host", "--tmpfs", "/logs:uid=65532"]
    const mounted = ["--volume", `${kubeconfig}:/kubeconfig:ro`]
    const args = ["facade", "--kubeconfig", "/kubeconfig", "--logs-dir", "/logs", "--port", "0"]
    await promisify(execFile)("docker", ["run", ...started, ...RESTRICTED, ...mounted, image, ...args])
    const container = docker.getContainer(name)
    try {
      const url = await eventually(async () => {
        const output = (await container.logs({ stdout: true, stderr: true })).toString()
        const [, url] = /"url":"([^"]+)"/.exec(output) ?? []
        expect(url, output).toBeDefined()
        return url
      })
      for (const path of ["/livez", "/1/docs", "/1/docs/docs.js", "/1/docs/swagger-ui-bundle.js"])
        expect((await fetch(`${url}${path}`)).status, path).toBe(200)
      await makesKey("docker", "exec", name, "/nodejs/bin/node", "/berth/berth.mjs")
      await makesKey("docker", "run", "--rm", ...RESTRICTED, image)
      await container.stop({ t: 60 })
      expect((await container.inspect()).State.ExitCode).toBe(0)
    } finally {
      await container.remove({ force: true })
    }
  })

  it("is the agent as VMs start it, and mounts buckets by what it holds", { timeout: VOLUMES_WAIT_MS }, async () => {
    using _volumes = await engineVolumes()
    const script = "echo ahoy > /out/greeting; cat /out/greeting"
    const launch = await world.launch({
      image: images.tools,
      command: ["sh", "-c", script],
      volumes: { out: { bucket: "bucket", mountPath: "/out", prefix: "results" } },
    })
    const userData = { ...(JSON.parse(gateway.userData(launch)) as object), image }
    await writeFile(join(folder, "user-data.json"), JSON.stringify(userData), { mode: 0o600 })
    await promisify(execFile)("sh", ["-c", startOfAgent(image, folder, `berth-agent-${launch.metadata.name}`)])
    expect((await world.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
    expect((await gateway.logOf(launch)).toString()).toBe("ahoy\n")
    expect(await containersOf(launch)).toEqual([])
  })
})

/** The command line of the unit that cloud-init writes, for another folder. */
function startOfAgent(agentImage: string, dataDir: string, name: string): string {
  const config = { launch: "1", gatewayUrl: "http://127.0.0.1:1", bootstrapToken: "t", lifetimeSeconds: 60 }
  const { write_files: files } = load(renderCloudInit(config, { system: "ecs", agentImage })) as {
    write_files: { content: string }[]
  }
  const command = files.map(({ content }) => /^(docker run .*) && systemctl poweroff/m.exec(content)?.[1]).join("")
  if (command === "") throw new Error("the user data starts no agent")
  return command.replaceAll(AGENT_DATA_DIR, dataDir).replace("berth-agent", name)
}
