import { engineAnswers } from "../agent/runtimes/detect.ts"
import { DEFAULT_DOCKER_SOCKET } from "../agent/runtimes/docker.ts"
import { pullMissing } from "../cloud/local/images.ts"
import type { LocalOptions } from "../options.ts"
import type { Report } from "./controlplane/programs.ts"

/** What runs the containers of the local cloud's VMs. */
export type ChosenRuntime = { runtime: "docker"; dockerSocket: string } | { runtime: "process" }

/**
 * Docker, when an engine answers and has or gets the images that are known to be wanted; else the commands run on
 * this host without their images, which is told. An engine that was asked for by name must answer.
 */
export async function chooseRuntime(
  { runtime, dockerSocket = DEFAULT_DOCKER_SOCKET }: Pick<LocalOptions, "runtime" | "dockerSocket">,
  images: readonly string[],
  report: Report,
): Promise<ChosenRuntime> {
  if (runtime === "process") return { runtime }
  if (!(await engineAnswers(dockerSocket))) {
    const why = `no Docker engine answers at ${dockerSocket}`
    if (runtime === "docker") throw new Error(`${why}: start one, or choose --runtime process`)
    report(`${why}: commands run directly on this host, without their images`)
    return { runtime: "process" }
  }
  const missing = runtime === "docker" ? undefined : await pullMissing(dockerSocket, images)
  if (missing === undefined) return { runtime: "docker", dockerSocket }
  report(`the Docker engine answers, but ${missing}`)
  report("so commands run directly on this host, without their images")
  return { runtime: "process" }
}
