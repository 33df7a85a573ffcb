import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import Docker from "dockerode"
import { afterEach, describe, expect, it } from "vitest"
import { chooseRuntime } from "../../dev/runtime.ts"
import { engineAnswers } from "../../src/agent/runtimes/detect.ts"
import { DEFAULT_DOCKER_SOCKET } from "../../src/agent/runtimes/docker.ts"

const DOCKER = { runtime: "docker", dockerSocket: DEFAULT_DOCKER_SOCKET }
const hasEngine = await engineAnswers()
const withoutEngine = hasEngine ? "" : " (skipped: no Docker engine answers)"
const canMake = hasEngine && existsSync("/bin/busybox")
const withoutBusybox = canMake ? "" : " (skipped: it needs a Docker engine and /bin/busybox)"

let lines: string[] = []
const report = (line: string) => void lines.push(line)
const toRemove: string[] = []

afterEach(async () => {
  lines = []
  for (const image of toRemove.splice(0)) await new Docker().getImage(image).remove({ force: true, noprune: true })
})

/** Returns a tag that no registry has. */
const unpublished = (repository: string) => `${repository}:berth-test-${randomBytes(4).toString("hex")}`

describe("selection of the container runtime on one machine", () => {
  it.runIf(canMake)(
    `uses Docker and builds a busybox that can't be pulled from the host's, with a warning each time${withoutBusybox}`,
    async () => {
      const image = unpublished("busybox")
      toRemove.push(image)
      expect(await chooseRuntime({ runtime: "auto" }, [image], report)).toEqual(DOCKER)
      expect(lines.join("\n")).toMatch(
        `${image} is built from /bin/busybox of this machine: the engine can't pull it (`,
      )
      const [output] = await runIn(image, ["sh", "-c", "echo $((6 * 7)) && awk 'BEGIN { print \"awk\" }'"])
      expect(output).toBe("42\nawk\n")

      lines = []
      expect(await chooseRuntime({ runtime: "auto" }, [image], report)).toEqual(DOCKER)
      expect(lines.join("\n")).toContain(
        `${image} is built from /bin/busybox of this machine: an earlier start built it`,
      )
    },
  )

  it.runIf(hasEngine)(`uses the host if an image can be neither pulled nor built${withoutEngine}`, async () => {
    const image = unpublished("berth-test/nowhere")
    expect(await chooseRuntime({ runtime: "auto" }, [image], report)).toEqual({ runtime: "process" })
    expect(lines).toEqual([expect.stringContaining(`the Docker engine can't pull ${image} (`)])
    expect(lines[0]).toMatch(
      /: jobs run as your user on this machine, without their images, and can read all your files$/,
    )
  })

  it.runIf(hasEngine)(`uses Docker on request, with a warning that the samples fail${withoutEngine}`, async () => {
    const image = unpublished("berth-test/nowhere")
    expect(await chooseRuntime({ runtime: "docker" }, [image], report)).toEqual(DOCKER)
    expect(lines.join("\n")).toContain(`the samples fail: the engine can't pull ${image} (`)
  })

  it("uses the host if no engine answers, and throws if an engine or its socket was named", async () => {
    const nowhere = "/nonexistent/docker.sock"
    const byDefault = await chooseRuntime({ runtime: "auto" }, [], report, nowhere)
    expect(byDefault).toEqual({ runtime: "process" })
    expect(lines).toEqual([
      expect.stringMatching(
        /^no Docker engine answers at \/nonexistent\S*; name its socket by --docker-socket or DOCKER_HOST; jobs run as you/,
      ),
    ])
    const why = "no Docker engine answers at /nonexistent/docker.sock: start one, name"
    await expect(chooseRuntime({ runtime: "docker" }, [], report, nowhere)).rejects.toThrow(why)
    await expect(chooseRuntime({ runtime: "auto", dockerSocket: nowhere }, [], report)).rejects.toThrow(why)
  })
})

/** Returns what a command writes in a container of the image, and its exit code. */
async function runIn(image: string, command: string[]): Promise<[output: string, exitCode: number]> {
  const container = await new Docker().createContainer({ Image: image, Cmd: command, Tty: false })
  try {
    await container.start()
    const { StatusCode } = (await container.wait()) as { StatusCode: number }
    const log = await container.logs({ stdout: true, follow: false })
    // Each frame of the engine's stream begins with a header of 8 bytes.
    const frames: string[] = []
    for (let at = 0; at < log.length; at += 8 + log.readUInt32BE(at + 4)) {
      frames.push(log.subarray(at + 8, at + 8 + log.readUInt32BE(at + 4)).toString())
    }
    return [frames.join(""), StatusCode]
  } finally {
    await container.remove({ force: true })
  }
}
