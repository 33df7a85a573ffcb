import type Docker from "dockerode"
import type { SessionTarget } from "../../core/protocol/sessions.ts"
import { DockerEntrance } from "./docker-entrance.ts"
import { CALL_SECONDS, errorMessage, ifFound, withTimeout } from "./engine.ts"
import { type Entrance, type Entry, EntryError } from "./runtime.ts"
import { putTools, sleepIn, TOOLS_FOLDER, type Toolbox } from "./toolbox.ts"

/** Repository of the images of kept containers on this machine. Their tag is the Launch. */
const KEPT_IMAGES = "berth-kept"

/** Time for the copy of a container's files, seconds. */
const COPY_SECONDS = 1800

export interface KeptOptions {
  docker: Docker
  /** The ended container. */
  container: Docker.Container
  launch: string
  name: string
  labels: Record<string, string>
}

/**
 * Way into a failed container: a copy of it, with its files as the failure left them, its variables, volumes and limits. It
 * is made when a person first enters. Its first process only sleeps, so that it works with any image.
 */
export class KeptEntrance implements Entrance {
  readonly #options: KeptOptions
  #copy: Promise<Entrance> | undefined

  constructor(options: KeptOptions) {
    this.#options = options
  }

  async exec(options: NonNullable<SessionTarget["exec"]>): Promise<Entry> {
    return await (await this.#entrance()).exec(options)
  }

  async connect(port: number): Promise<Entry> {
    return await (await this.#entrance()).connect(port)
  }

  #entrance(): Promise<Entrance> {
    this.#copy ??= this.#start().catch((error: unknown) => {
      // A later session tries again.
      this.#copy = undefined
      throw new EntryError(`the failed container can't be copied: ${errorMessage(error)}`)
    })
    return this.#copy
  }

  async #start(): Promise<Entrance> {
    const { docker, container: failed, launch, name, labels } = this.#options
    // One that an earlier agent of this disk has made.
    await ifFound(docker.getContainer(name).remove({ force: true, v: true }))
    const { Config, HostConfig, Id } = await withTimeout(CALL_SECONDS, failed.inspect())
    await withTimeout(COPY_SECONDS, failed.commit({ repo: KEPT_IMAGES, tag: launch }))
    const { Mounts: _, Binds: __, Init: ___, ...limits } = HostConfig
    const copy = await withTimeout(
      CALL_SECONDS,
      docker.createContainer({
        name,
        Image: `${KEPT_IMAGES}:${launch}`,
        Entrypoint: sleepIn(TOOLS_FOLDER),
        Cmd: [],
        Labels: labels,
        WorkingDir: Config.WorkingDir,
        User: Config.User,
        Env: Config.Env,
        HostConfig: { ...limits, VolumesFrom: [Id] },
      }),
    )
    await putTools(copy)
    await withTimeout(CALL_SECONDS, copy.start())
    const path = Config.Env.find((line) => line.startsWith("PATH=")) ?? "PATH=/usr/local/bin:/usr/bin:/bin"
    const toolbox: Toolbox = { container: copy, env: [`${path}:${TOOLS_FOLDER}`] }
    return new DockerEntrance(copy, { toolbox: async () => toolbox })
  }
}

/** Removes the image of a kept container. */
export async function removeKeptImage(docker: Docker, launch: string): Promise<void> {
  await ifFound(docker.getImage(`${KEPT_IMAGES}:${launch}`).remove({ force: true }))
}
