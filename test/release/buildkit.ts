import { execFile } from "node:child_process"
import { mkdir, symlink } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { type GoProgram, goProgram } from "../go-program.ts"
import { startTied } from "../tied-process.ts"

/** Builder of images for several architectures: https://github.com/moby/buildkit */
const BUILDKITD: GoProgram = {
  name: "buildkitd",
  package: "github.com/moby/buildkit/cmd/buildkitd",
  version: "v0.25.1",
  excludes: true,
}

/** Docker's command for it: https://github.com/docker/buildx */
const BUILDX: GoProgram = {
  name: "buildx",
  package: "github.com/docker/buildx/cmd/buildx",
  version: "v0.29.1",
  excludes: true,
}

export interface BuildKit {
  /** Environment in which `docker buildx` uses this builder. */
  env: NodeJS.ProcessEnv
  stop(): Promise<void>
}

/** Starts BuildKit with its data in this folder. Needs root, and Docker's runc. */
export async function startBuildKit(folder: string): Promise<BuildKit> {
  const [daemon, buildx] = [await goProgram(BUILDKITD), await goProgram(BUILDX)]
  const config = join(folder, "docker")
  await mkdir(join(config, "cli-plugins"), { recursive: true })
  await symlink(buildx, join(config, "cli-plugins", "docker-buildx"))
  const address = `unix://${join(folder, "buildkitd.sock")}`
  const args = ["--root", join(folder, "buildkit"), "--addr", address, "--containerd-worker=false"]
  const server = await startTied(daemon, args, { ready: /running server on (\S+)/ })
  const env = {
    ...process.env,
    DOCKER_CONFIG: config,
    BUILDX_CONFIG: join(folder, "buildx"),
    BUILDX_BUILDER: "release",
  }
  await promisify(execFile)("docker", ["buildx", "create", "--name", "release", "--driver", "remote", address], { env })
  return { env, stop: () => server.stop() }
}
