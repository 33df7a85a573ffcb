import { createHash, randomBytes } from "node:crypto"
import { once } from "node:events"
import { readFile } from "node:fs/promises"
import { gzipSync } from "node:zlib"
import { pack } from "tar-stream"
import { afterAll, beforeAll, expect } from "vitest"
import type { Run } from "../../src/core/apis/job.ts"
import { BUSYBOX, buildImage, docker } from "./images.ts"
import { containers, fixture, gateway, images, prepareAgents, runVm, shell } from "./suite.ts"
import { archiveOf, store } from "./workdirs.ts"

/** Working directories in containers: of images without a shell, for their user, whatever the archive has. */
prepareAgents()

const tag = randomBytes(4).toString("hex")
const hasher = `berth-test/hasher:${tag}`
const { describe, it } = containers

describe("a container with a workdir", () => {
  beforeAll(async () => {
    // A program without libraries and a user, and nothing else: no shell, no tar, no /workspace.
    const dockerfile = ["FROM scratch", "COPY busybox /sha256sum", "USER 65532:65533", 'ENTRYPOINT ["/sha256sum"]']
    await buildImage(hasher, { Dockerfile: dockerfile.join("\n"), busybox: await readFile(BUSYBOX) })
  })
  afterAll(() => docker.getImage(hasher).remove({ force: true, noprune: true }))

  const uploaded = async (...entries: Parameters<typeof archiveOf>) =>
    store(gateway, fixture.namespace, await archiveOf(...entries))
  const vm = (run: Partial<Run>) => runVm("docker", run)

  it("has the same 80 MB in an image without a shell", async () => {
    const content = randomBytes(80 * 1024 * 1024)
    const sha256 = await uploaded([{ name: "data/model.bin" }, content])
    const { log, finish } = await vm({ image: hasher, args: ["data/model.bin"], workdir: { sha256 } })
    expect(finish?.reason).toBe("Succeeded")
    expect(log).toBe(`${createHash("sha256").update(content).digest("hex")}  data/model.bin\n`)
  })

  it("starts in its folder, which belongs to the image's user, with the image's entrypoint", async () => {
    const sha256 = await uploaded(
      [{ name: "bin/tool", mode: 0o4755 }, "#!/bin/sh\necho tool\n"],
      [{ name: "link", type: "symlink", linkname: "bin/tool" }],
      [{ name: "hard", type: "link", linkname: "bin/tool" }],
    )
    const workdir = { sha256, path: "/srv/my app" }
    const root = await vm(
      shell("pwd; ./link; cat hard; busybox stat -c '%u:%g %a %n' . bin/tool; touch new", { workdir }),
    )
    expect(root.log).toBe("/srv/my app\ntool\n#!/bin/sh\necho tool\n0:0 755 .\n0:0 755 bin/tool\n")
    expect(root.finish?.reason).toBe("Succeeded")
    const image = `berth-test/user:${tag}`
    const passwd = "root:x:0:0::/:/bin/sh\nworker:x:1234:4321::/:/bin/sh\n"
    const dockerfile = [`FROM ${images?.tools}`, "COPY etc/passwd /etc/passwd", "USER worker"].join("\n")
    await buildImage(image, { Dockerfile: dockerfile, "etc/passwd": passwd })
    try {
      const user = await vm({
        ...shell("busybox stat -c '%u:%g %n' . bin; echo x > bin/new; cat bin/new", { workdir }),
        image,
      })
      expect(user.log).toBe("1234:4321 .\n1234:4321 bin\nx\n")
    } finally {
      await docker.getImage(image).remove({ force: true, noprune: true })
    }
  })

  it("has the files again in the container of each attempt", async () => {
    const sha256 = await uploaded([{ name: "state" }, "fresh\n"])
    const run = shell("cat state; echo used > state; exit 1", { workdir: { sha256 }, maxRetries: 1 })
    expect((await vm(run)).log).toBe("fresh\n--- attempt 2 ---\nfresh\n")
  })

  it.each<[string, Parameters<typeof archiveOf>, string]>([
    ["a name that leads out", [[{ name: "../etc/passwd" }, "x"]], "leads out of the working directory"],
    ["a link that leads out", [[{ name: "l", type: "symlink", linkname: "../../proc" }]], "leads out"],
    ["a device", [[{ name: "d", type: "block-device", devmajor: 8, devminor: 0 }]], "is a block-device"],
  ])("never starts with %s", async (_what, entries, why) => {
    const sha256 = await uploaded([{ name: "a" }, randomBytes(1_000_000)], ...entries)
    const { log, finish } = await vm(shell("echo ran", { workdir: { sha256 } }))
    expect(finish).toMatchObject({ reason: "WorkdirFailed", message: expect.stringContaining(why) })
    expect(log).toBe("")
  })

  it("never starts with a file of 10 GB of zeros, nor unpacks it", async () => {
    const sha256 = await store(gateway, fixture.namespace, await bomb())
    const { log, finish } = await vm(shell("echo ran", { workdir: { sha256 } }))
    expect(finish).toMatchObject({ reason: "WorkdirFailed", message: expect.stringContaining("more than 2048 MiB") })
    expect(log).toBe("")
  })
})

/** Returns an archive of some MB that unpacks to one file of 10 GB. */
async function bomb(): Promise<Buffer> {
  const archive = pack()
  archive.entry({ name: "zeros", size: 10 * 1024 ** 3 }).write(Buffer.alloc(1024))
  const [header] = (await once(archive, "data")) as [Buffer]
  archive.destroy()
  const member = gzipSync(Buffer.alloc(16 * 1024 * 1024))
  return Buffer.concat([gzipSync(header), ...Array<Buffer>(640).fill(member)])
}
