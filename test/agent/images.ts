import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import Docker from "dockerode"
import { pack } from "tar-stream"
import { engineAnswers } from "../../src/agent/runtimes/detect.ts"
import { LAUNCH_LABEL } from "../../src/agent/runtimes/docker.ts"

/** One static binary with a shell and its tools in it: all that test images are made of. */
export const BUSYBOX = "/bin/busybox"

const TOOLS = ["sh", "cat", "echo", "env", "head", "id", "seq", "sleep", "true"]

export const docker = new Docker({ socketPath: "/var/run/docker.sock" })

/** Why tests with containers can't run here; undefined when they can. */
export async function missingForContainers(): Promise<string | undefined> {
  if (!(await engineAnswers())) return "no Docker Engine answers at /var/run/docker.sock"
  return existsSync(BUSYBOX) ? undefined : `${BUSYBOX} is missing (Debian's package busybox-static)`
}

export interface TestImages {
  /** A shell and tools; its entrypoint is `/bin/echo entrypoint`, its command `cmd`. */
  tools: string
  /** A static binary, a file that it prints, and nothing else. */
  distroless: string
  remove: () => Promise<void>
}

/** Builds the images on the spot: no registry is needed. */
export async function buildImages(): Promise<TestImages> {
  const tag = randomBytes(4).toString("hex")
  const tools = `berth-test/tools:${tag}`
  const distroless = `berth-test/distroless:${tag}`
  const links = TOOLS.filter((tool) => tool !== "sh").map((tool) => `&& busybox ln -s busybox /bin/${tool}`)
  await build(tools, [
    "FROM scratch",
    "COPY busybox /bin/busybox",
    "COPY busybox /bin/sh",
    "ENV FROM_IMAGE=yes",
    `RUN ["/bin/sh", "-c", "true ${links.join(" ")}"]`,
    'ENTRYPOINT ["/bin/echo", "entrypoint"]',
    'CMD ["cmd"]',
  ])
  await build(distroless, [
    "FROM scratch",
    "COPY busybox /cat",
    "COPY Dockerfile /greeting",
    'ENTRYPOINT ["/cat"]',
    'CMD ["/greeting"]',
  ])
  const remove = async (): Promise<void> => {
    for (const name of [tools, distroless]) {
      // What a test that failed has left.
      for (const { Id } of await docker.listContainers({ all: true, filters: { ancestor: [name] } })) {
        await docker.getContainer(Id).remove({ force: true })
      }
      await docker.getImage(name).remove({ force: true })
    }
  }
  return { tools, distroless, remove }
}

async function build(name: string, dockerfile: string[]): Promise<void> {
  const context = pack()
  context.entry({ name: "Dockerfile" }, `${dockerfile.join("\n")}\n`)
  context.entry({ name: "busybox", mode: 0o755 }, await readFile(BUSYBOX))
  context.finalize()
  const stream = await docker.buildImage(context as unknown as NodeJS.ReadableStream, { t: name })
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)))
  })
}

/** The containers that there are for a Launch, running or not. */
export async function containersOf(launch: { metadata: { name: string } }): Promise<Docker.ContainerInfo[]> {
  return await docker.listContainers({ all: true, filters: { label: [`${LAUNCH_LABEL}=${launch.metadata.name}`] } })
}
