import { once } from "node:events"
import { readFile, stat } from "node:fs/promises"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { describe, it } from "vitest"
import { DEFAULT_DOCKER_SOCKET } from "../../src/agent/runtimes/docker.ts"
import { missingForContainers } from "../agent/images.ts"
import { commandsIn } from "../documents.ts"
import { needing } from "../needing.ts"
import { expectStopped, folder, inShell, prepareStacks, SUBMITTED_LOG, start } from "./stack.ts"

prepareStacks()
const containers = needing(await missingForContainers())

/** Starts another socket of the real engine, and counts the containers that are created through it. */
async function otherSocket(path: string) {
  const open = new Set<Socket>()
  let created = 0
  const server = createServer((near) => {
    const far = connect(DEFAULT_DOCKER_SOCKET)
    for (const end of [near, far]) {
      open.add(end)
      end.on("error", () => end.destroy()).on("close", () => open.delete(end))
    }
    near.on("data", (bytes) => {
      if (/^POST \S*\/containers\/create/m.test(bytes.toString("latin1"))) created++
    })
    near.pipe(far).pipe(near)
  }).listen(path)
  await once(server, "listening")
  const close = (): void => {
    server.close()
    for (const end of open) end.destroy()
  }
  return { close, created: () => created }
}

/** Answers the question of `berth run`: no test has a terminal here. */
function withoutQuestions(blocks: string[]): string {
  return blocks.join("\n").replaceAll(/^berth run /gm, "berth run --yes ")
}

describe("everything on one machine", { timeout: 300_000, concurrent: true }, () => {
  it("demo: ends by Ctrl-C while jobs run, leaves no process and prints no results", async ({ expect }) => {
    const dataDir = join(folder, "stopped-demo")
    const demo = start("demo", dataDir)
    await demo.printed(/ {2}timeout running/, 120)
    await demo.stop("SIGINT")
    await expectStopped(demo, { code: 130, dataDir }, expect)
    expect(demo.output).toContain("stopped before all jobs had ended; ending what runs ...")
    expect(demo.output).not.toMatch(/as expected|npm start|JOB +PHASE/)
  })

  it("serve: runs the commands of README.md and docs/api.md, ends by Ctrl-C, and continues after a restart", async ({
    expect,
  }) => {
    const dataDir = join(folder, "serve")
    const env = join(dataDir, "env")
    const first = start("serve", dataDir, ["--port", "0"])
    try {
      await first.printed(/Berth is up at/, 120)
      expect((await stat(env)).mode & 0o777).toBe(0o600)
      const [apply = "", cancel = ""] = commandsIn("README.md", "With kubectl")
      const [said, listed] = await Promise.all([
        inShell(env, withoutQuestions(commandsIn("README.md", "With berth"))),
        inShell(env, apply),
        inShell(env, cancel),
      ])
      expect(said).toMatch(/^Ahoy$/m)
      expect(said).toContain("Ahoy from a berth (3 of 3)\n")
      expect(said).toContain("The container started on VM 1.")
      expect(listed).toMatch(/^primes .*succeeded/m)
      await inShell(env, "kubectl wait --for=jsonpath={.status.phase}=cancelled bj/cancelled --timeout=100s")
    } finally {
      await first.stop("SIGINT")
    }
    await expectStopped(first, { code: 0, dataDir }, expect)

    const [, key] = /^BERTH_API_KEY=(\S+)$/m.exec(await readFile(env, "utf8")) ?? []
    const second = start("serve", dataDir, ["--port", "0"])
    try {
      await second.printed(/Berth is up at/, 120)
      expect(await readFile(env, "utf8")).toContain(`BERTH_API_KEY=${key}\n`)
      const kept = await inShell(env, "api GET /1/jobs")
      for (const job of ["hello", "cancelled"]) expect(kept).toContain(`"name":"${job}"`)
      expect(kept).not.toContain('"name":"primes"')
      expect(await inShell(env, "api GET /1/jobs/hello/logs")).toContain("Ahoy from a berth (3 of 3)\n")
      await inShell(env, commandsIn("docs/api.md", "A tour with curl").join("\n"))
      expect(await inShell(env, "api GET /1/jobs/submitted/logs")).toBe(SUBMITTED_LOG)
      expect(await inShell(env, "api GET /1/jobs/long")).toMatch(/^200 .*"status":"cancelled"/)
      expect(await inShell(env, "api GET /1/keys")).toContain('"name":"build"')
      expect(await inShell(env, "api GET /1/cronjobs/nightly")).toMatch(/^200 /)
    } finally {
      await second.stop("SIGINT")
    }
    await expectStopped(second, { code: 0, dataDir }, expect)
  })

  containers.it("serve: runs containers through the engine's socket in DOCKER_HOST", async ({ expect }) => {
    const dataDir = join(folder, "engine")
    const env = join(dataDir, "env")
    const socket = join(folder, "engine.sock")
    const engine = await otherSocket(socket)
    const runtime = ["--port", "0", "--runtime", "docker"]
    const stack = start("serve", dataDir, runtime, { DOCKER_HOST: `unix://${socket}` })
    try {
      await stack.printed(/Berth is up at/, 120)
      // The images of the samples may need containers, too.
      const before = engine.created()
      await inShell(env, "kubectl apply -f manifests/samples/hello.yaml")
      await inShell(env, "kubectl wait --for=condition=Complete bj/hello --timeout=100s")
      expect(engine.created()).toBeGreaterThan(before)
    } finally {
      await stack.stop("SIGINT")
      engine.close()
    }
  })

  it("serve: says at once that no engine answers at the named socket", async ({ expect }) => {
    const socket = join(folder, "none.sock")
    const stack = start("serve", join(folder, "no-engine"), ["--runtime", "auto", "--docker-socket", socket])
    expect(await stack.ended).toEqual({ code: 1, signal: null })
    expect(stack.output).toContain(`no Docker engine answers at ${socket}: start one, name another`)
    expect(stack.output).not.toContain("starting the Kubernetes API server")
  })
})
