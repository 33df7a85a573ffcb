import { execFileSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { buffer } from "node:stream/consumers"
import Docker from "dockerode"
import { pack } from "tar-stream"
import { engineAnswers } from "../../src/agent/runtimes/detect.ts"
import { LAUNCH_LABEL } from "../../src/agent/runtimes/docker.ts"

/** Static binary with a shell and its tools, from which all test images are built. */
export const BUSYBOX = "/bin/busybox"

const TOOLS = ["sh", "cat", "echo", "env", "head", "id", "rm", "seq", "sleep", "true"]

export const docker = new Docker({ socketPath: "/var/run/docker.sock" })

/**
 * Returns this host's IPv4 address on the bridge of the engine's containers. An engine reports the address from its
 * second start on; until then it is the first address of the bridge's subnet.
 */
export async function bridgeAddress(): Promise<string> {
  const { IPAM } = (await docker.getNetwork("bridge").inspect()) as {
    IPAM: { Config: { Subnet: string; Gateway?: string }[] }
  }
  const [config] = IPAM.Config
  if (config === undefined) throw new Error("the Docker engine's bridge has no subnet")
  return config.Gateway ?? config.Subnet.replace(/\d+\/\d+$/, "1")
}

/** Returns the reason why tests with containers can't run here, or undefined. */
export async function missingForContainers(): Promise<string | undefined> {
  if (!(await engineAnswers())) return "no Docker Engine answers at /var/run/docker.sock"
  return existsSync(BUSYBOX) ? undefined : `${BUSYBOX} is missing (Debian's package busybox-static)`
}

export interface TestImages {
  /** Image with a shell and tools; its entrypoint is `/bin/echo entrypoint`, its command `cmd`. */
  tools: string
  /** Image with a static binary and a file that it prints, and nothing else. */
  distroless: string
  remove: () => Promise<void>
}

/** Builds the images on this machine, without a registry. */
export async function buildImages(): Promise<TestImages> {
  const tag = randomBytes(4).toString("hex")
  const tools = `berth-test/tools:${tag}`
  const distroless = `berth-test/distroless:${tag}`
  // The label keeps images of two suites different. Else one image would be an ancestor of both suites' containers.
  const label = `LABEL suite=${tag}`
  const links = TOOLS.filter((tool) => tool !== "sh").map((tool) => `&& busybox ln -s busybox /bin/${tool}`)
  await build(tools, [
    "FROM scratch",
    "COPY busybox /bin/busybox",
    "COPY busybox /bin/sh",
    "ENV FROM_IMAGE=yes",
    `RUN ["/bin/sh", "-c", "true ${links.join(" ")}"]`,
    'ENTRYPOINT ["/bin/echo", "entrypoint"]',
    'CMD ["cmd"]',
    label,
  ])
  await build(distroless, [
    "FROM scratch",
    "COPY busybox /cat",
    "COPY Dockerfile /greeting",
    'ENTRYPOINT ["/cat"]',
    'CMD ["/greeting"]',
    label,
  ])
  const remove = async (): Promise<void> => {
    for (const name of [tools, distroless]) {
      // Left by tests that failed.
      for (const { Id } of await docker.listContainers({ all: true, filters: { ancestor: [name] } })) {
        await docker.getContainer(Id).remove({ force: true })
      }
      // Keeps the parent images: another suite may be building on them.
      await docker.getImage(name).remove({ force: true, noprune: true })
    }
  }
  return { tools, distroless, remove }
}

async function build(name: string, dockerfile: string[]): Promise<void> {
  await buildImage(name, { Dockerfile: `${dockerfile.join("\n")}\n`, busybox: await readFile(BUSYBOX) })
}

/** Returns the containers of a Launch, running or not. */
export async function containersOf(launch: { metadata: { name: string } }): Promise<Docker.ContainerInfo[]> {
  return await docker.listContainers({ all: true, filters: { label: [`${LAUNCH_LABEL}=${launch.metadata.name}`] } })
}

/** Returns the shared libraries of a program, by path without the first slash. */
export async function librariesOf(program: string): Promise<Record<string, Buffer>> {
  const paths = execFileSync("ldd", [program], { encoding: "utf8" }).match(/\/\S+(?= \()/g) ?? []
  return Object.fromEntries(
    await Promise.all(paths.map(async (path) => [path.slice(1), await readFile(path)] as const)),
  )
}

/** Builds an image from these files, a Dockerfile among them. */
export async function buildImage(name: string, files: Record<string, string | Uint8Array>): Promise<void> {
  const context = pack()
  for (const [path, content] of Object.entries(files)) {
    context.entry({ name: path, mode: path.startsWith("etc/") ? 0o644 : 0o755 }, Buffer.from(content))
  }
  context.finalize()
  await followProgress(await docker.buildImage(context as unknown as NodeJS.ReadableStream, { t: name }))
}

/** Loads an image of any architecture, which has one program and nothing else. */
export async function loadImage(name: string, of: { architecture: string; program: Buffer }): Promise<void> {
  const files = pack()
  files.entry({ name: "app", mode: 0o755 }, of.program)
  files.finalize()
  const layer = await buffer(files)
  const diff = `sha256:${createHash("sha256").update(layer).digest("hex")}`
  const config = {
    ...{ architecture: of.architecture, os: "linux", config: { Entrypoint: ["/app"] } },
    rootfs: { type: "layers", diff_ids: [diff] },
  }
  const image = pack()
  image.entry({ name: "manifest.json" }, JSON.stringify([{ Config: "c.json", RepoTags: [name], Layers: ["l.tar"] }]))
  image.entry({ name: "c.json" }, JSON.stringify(config))
  image.entry({ name: "l.tar" }, layer)
  image.finalize()
  await followProgress(await docker.loadImage(image as unknown as NodeJS.ReadableStream))
}

/** Waits for the stream's end. The engine reports an error in the last line. */
export async function followProgress(stream: NodeJS.ReadableStream): Promise<void> {
  const lines = await new Promise<{ error?: string }[]>((done, reject) => {
    docker.modem.followProgress(stream, (error, output) => (error === null ? done(output) : reject(error)))
  })
  const error = lines.find((line) => line.error !== undefined)?.error
  if (error !== undefined) throw new Error(error)
}
