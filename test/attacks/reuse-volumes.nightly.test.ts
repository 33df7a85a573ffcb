import { readFile } from "node:fs/promises"
import { CreateBucketCommand, S3 } from "@aws-sdk/client-s3"
import { afterAll, beforeAll, expect, it } from "vitest"
import { runHost } from "../../src/agent/host/main.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { Handover, reusable } from "../agent/handover.ts"
import { docker } from "../agent/images.ts"
import { VOLUMES_WAIT_MS } from "../agent/mounts.ts"
import { OwnMachine } from "../agent/own-machine.ts"
import { missingForVolumes, type VolumeVms, volumeVms } from "../agent/volume-vms.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { filesWith } from "./files-with.ts"

const volumes = needing((await missingForVolumes()) ?? missingTool("moto"))

const CANARY = "canary-of-a-bucket-51d0"

volumes.describe("a job finds no mount, no driver and no credentials of the buckets of the job before it", () => {
  const fixture = launchFixture("reused-volumes")
  const handover = new Handover(
    () => fixture,
    (launch) => gateway.userData(launch),
  )
  let moto: Moto
  let gateway: TestGateway
  let vms: VolumeVms

  beforeAll(async () => {
    moto = await startMoto()
    vms = await volumeVms(fixture)
    const credentials = { accessKeyId: "key", secretAccessKey: "secret" }
    const s3 = new S3({ endpoint: moto.url, region: "us-east-1", forcePathStyle: true, credentials })
    await s3.send(new CreateBucketCommand({ Bucket: "first" }))
    const remote = { type: "s3", provider: "Other", endpoint: moto.url, region: "us-east-1", force_path_style: "true" }
    const keys = { accessKeyId: "key", secretAccessKey: CANARY }
    gateway = await startGateway(fixture, {
      before: handover.handler,
      parts: { buckets: async () => ({ out: { path: "first", remote, keys } }) },
    })
  }, VOLUMES_WAIT_MS)
  afterAll(async () => {
    await gateway.close()
    await moto.stop()
    await vms.remove()
  })

  const script = `echo ${CANARY} > /out/file`
  const mount = { out: { bucket: "first", mountPath: "/out" } }
  const spying = () => ({ image: vms.image, command: ["sh", "-c", "cat /proc/mounts; env"] })

  async function expectNothingOf(launch: StoredLaunch, dataDir: string): Promise<void> {
    await vms.expectNothingLeft(launch)
    expect(await filesWith(CANARY, dataDir)).toEqual([])
    await expect(docker.getVolume(`berth-${launch.metadata.name}-out`).inspect()).rejects.toThrow(/no such volume/)
  }

  async function expectSaidNothing(launch: StoredLaunch, next: StoredLaunch): Promise<void> {
    expect((await gateway.logOf(next)).toString()).not.toMatch(/rclone|\/out|canary/)
    expect(await readFile("/proc/mounts", "utf8")).not.toContain(launch.metadata.name)
  }

  it("holds on a reused VM", async () => {
    const { launch, exit, dataDir } = await vms.start(gateway, script, mount, { run: reusable() })
    await handover.idle(launch)
    await expectNothingOf(launch, dataDir)
    const next = await handover.successor(launch, spying())
    expect(await exit).toMatchObject({ launch: next.metadata.name, finish: { reason: "Succeeded" } })
    await expectSaidNothing(launch, next)
  })

  it("holds on a machine of its own", async () => {
    const machine = await OwnMachine.create(fixture)
    const [dataDir, token, stop] = [await vms.newDisk(), await machine.token(), new AbortController()]
    const host = { dataDir, token, signal: stop.signal, logger: silentLogger }
    const exit = runHost({ ...host, gateway: { gatewayUrl: gateway.url }, runtime: "docker" })
    const run = { image: vms.image, command: ["sh", "-c", script], volumes: mount }
    const launch = await machine.launch(run, { volumesImage: vms.volumesImage })
    await machine.freed(launch)
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Succeeded" })
    await expectNothingOf(launch, dataDir)
    const next = await machine.launch(spying())
    await machine.freed(next)
    stop.abort()
    await exit
    await expectSaidNothing(launch, next)
  })
})
