import { access, readFile } from "node:fs/promises"
import { Readable } from "node:stream"
import Docker from "dockerode"
import tar from "tar-stream"
import { eventually } from "./eventually.ts"

const BUSYBOX = "/bin/busybox"
const IMAGE = "berth-test-e2e:3"
const SOCKET = "/var/run/docker.sock"

/** Programs that the jobs of these tests use. */
const APPLETS = ["sh", "sleep", "echo", "cat", "seq", "true", "false", "stty", "nc"]

/** Runtime for the jobs of a suite. */
export interface ContainerRuntime {
  name: "docker" | "process"
  image: string
  dockerSocket?: string
}

/** Runtime without engine and image: the commands run on this host. */
export const processRuntime: ContainerRuntime = { name: "process", image: "none" }

/** Returns Docker if an engine answers and a static busybox exists to build an image from, else processes. */
export async function containerRuntime(): Promise<ContainerRuntime> {
  const docker = new Docker({ socketPath: SOCKET })
  const possible = await Promise.all([docker.ping(), access(BUSYBOX)]).then(
    () => true,
    () => false,
  )
  if (!possible) {
    console.warn("no Docker engine answers, or there is no static busybox: jobs run as processes of this host")
    return processRuntime
  }
  await importBusybox(docker)
  return { name: "docker", image: IMAGE, dockerSocket: SOCKET }
}

/** Builds the image and keeps it for the next run: suites run in parallel, and none knows which one needs it last. */
async function importBusybox(docker: Docker): Promise<void> {
  if (await isThere(docker)) return
  const layer = tar.pack()
  layer.entry({ name: "bin/busybox", mode: 0o755 }, await readFile(BUSYBOX))
  for (const applet of APPLETS) layer.entry({ name: `bin/${applet}`, type: "symlink", linkname: "busybox" })
  layer.entry({ name: "tmp", type: "directory", mode: 0o1777 })
  layer.finalize()
  const [repo, tag] = IMAGE.split(":")
  await docker.importImage(Readable.from(layer), { repo, tag })
  await eventually(() => docker.getImage(IMAGE).inspect())
}

function isThere(docker: Docker): Promise<boolean> {
  return docker
    .getImage(IMAGE)
    .inspect()
    .then(
      () => true,
      () => false,
    )
}
