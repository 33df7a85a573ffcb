import { engineAnswers } from "../src/agent/runtimes/detect.ts"
import { DEFAULT_DOCKER_SOCKET } from "../src/agent/runtimes/docker.ts"
import type { Report } from "./controlplane/programs.ts"
import { type ObtainedImage, obtainImage } from "./local-cloud/images.ts"
import type { LocalOptions } from "./options.ts"

/** Runtime of the containers on the local cloud's VMs. */
export type ChosenRuntime = { runtime: "docker"; dockerSocket: string } | { runtime: "process" }

/** Only the operating system's rights protect a user's files from such a job. */
const AS_YOU = "jobs run as your user on this machine, without their images, and can read all your files"

/**
 * Chooses Docker if an engine answers and has, pulls or builds these images. Otherwise the jobs' commands run on this
 * host without their images. Reports the choice and its reason. Throws if a requested engine does not answer: the runtime
 * or the socket was named.
 */
export async function chooseRuntime(
  { runtime, dockerSocket: named }: Pick<LocalOptions, "runtime" | "dockerSocket">,
  images: readonly string[],
  report: Report,
  defaultSocket = DEFAULT_DOCKER_SOCKET,
): Promise<ChosenRuntime> {
  const dockerSocket = named ?? defaultSocket
  if (runtime === "process") {
    report(`runtime "process" was chosen: ${AS_YOU}`)
    return { runtime }
  }
  if (!(await engineAnswers(dockerSocket))) {
    const why = `no Docker engine answers at ${dockerSocket}`
    const other = `${named === undefined ? "name its" : "name another"} socket by --docker-socket or DOCKER_HOST`
    if (runtime === "docker" || named !== undefined)
      throw new Error(`${why}: start one, ${other}, or choose --runtime process`)
    report(`${why}; ${other}; ${AS_YOU}`)
    return { runtime: "process" }
  }
  const obtained = await Promise.all(images.map((image) => obtainImage(dockerSocket, image)))
  const missing = obtained.find(({ from }) => from === undefined)
  if (missing !== undefined && runtime === "auto") {
    report(`the Docker engine can't pull ${missing.image} (${pullErrorOf(missing)}): ${AS_YOU}`)
    return { runtime: "process" }
  }
  report("jobs run in containers of the Docker engine")
  for (const image of obtained) noteImage(image, report)
  return { runtime: "docker", dockerSocket }
}

/** Reports what could surprise a reader of the samples, or of the engine's list of images. */
function noteImage(obtained: ObtainedImage, report: Report): void {
  const { image, from } = obtained
  if (from === "engine" || from === "registry") return
  if (from === undefined) {
    report(`the samples fail: the engine can't pull ${image} (${pullErrorOf(obtained)})`)
    return
  }
  const why =
    "pullError" in obtained ? `the engine can't pull it (${pullErrorOf(obtained)})` : "an earlier start built it"
  report(`${image} is built from ${from} of this machine: ${why}; \`docker rmi ${image}\` removes it`)
}

function pullErrorOf(obtained: ObtainedImage): string {
  return "pullError" in obtained ? (obtained.pullError ?? "") : ""
}
