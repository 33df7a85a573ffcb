import { once } from "node:events"
import { mkdir, readFile, rm, writeFile } from "node:fs/promises"
import { createServer, request } from "node:http"
import type { AddressInfo } from "node:net"
import { dirname } from "node:path"
import { CreateBucketCommand, GetObjectCommand, ListObjectsV2Command, PutObjectCommand, S3 } from "@aws-sdk/client-s3"
import { afterAll, beforeAll, expect, it } from "vitest"
import type { AgentOptions } from "../../src/agent/main.ts"
import { DRIVER_SOCKET } from "../../src/agent/volumes/driver.ts"
import { connectedBuckets } from "../../src/api/gateway/buckets.ts"
import { awsBuckets } from "../../src/clouds/aws/bucket-credentials.ts"
import { reachedBucket } from "../../src/clouds/aws/s3.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { Volume } from "../../src/core/apis/job.ts"
import type { BucketAccess } from "../../src/core/protocol/protocol.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { VOLUMES_WAIT_MS } from "./mounts.ts"
import { missingForVolumes, type VolumeVms, volumeVms } from "./volume-vms.ts"

const volumes = needing((await missingForVolumes()) ?? missingTool("moto"))

volumes.describe("volumes", () => {
  const fixture = launchFixture("volumes")
  let moto: Moto
  let gateway: TestGateway
  let vms: VolumeVms
  let s3: S3
  /** Changes the access that the gateway returns for a volume; by default it is what AWS returns. */
  let change: (access: BucketAccess) => BucketAccess = (access) => access

  beforeAll(async () => {
    moto = await startMoto()
    vms = await volumeVms(fixture)
    const credentials = { accessKeyId: "key", secretAccessKey: "secret" }
    s3 = new S3({ endpoint: moto.url, region: "us-east-1", forcePathStyle: true, credentials })
    gateway = await startGateway(fixture, { parts: { buckets: bucketsOfMoto() } })
  }, VOLUMES_WAIT_MS)
  afterAll(async () => {
    await gateway.close()
    await moto.stop()
    await vms.remove()
  })

  function bucketsOfMoto() {
    const open = connectedBuckets({
      connections: {
        cached: () => undefined,
        live: async () => [connection("newer", "2026-01-02T00:00:00Z"), connection("older", "2026-01-01T00:00:00Z")],
      },
      credentials: async ({ metadata }) => ({ access_key_id: metadata.name, secret_access_key: "secret" }),
      providers: {
        aws: {
          find: (_, bucket, signal) => reachedBucket(s3, bucket, signal),
          access: awsBuckets({ endpoint: moto.url }),
        },
      },
    })
    return async (request: Parameters<typeof open>[0]) => {
      return Object.fromEntries(Object.entries(await open(request)).map(([name, access]) => [name, change(access)]))
    }
  }

  const launchVm = (script: string, volumes: Record<string, Volume>, options?: Partial<AgentOptions>) =>
    vms.start(gateway, script, volumes, options)

  async function bucket(name: string, objects: Record<string, string> = {}): Promise<string> {
    await s3.send(new CreateBucketCommand({ Bucket: name }))
    for (const [Key, Body] of Object.entries(objects)) await s3.send(new PutObjectCommand({ Bucket: name, Key, Body }))
    return name
  }

  async function objectsOf(name: string): Promise<Record<string, string>> {
    const { Contents = [] } = await s3.send(new ListObjectsV2Command({ Bucket: name }))
    const read = Contents.map(async ({ Key = "" }) => {
      const { Body } = await s3.send(new GetObjectCommand({ Bucket: name, Key }))
      return [Key, (await Body?.transformToString()) ?? ""] as const
    })
    return Object.fromEntries(await Promise.all(read))
  }

  it("volumes are read and written by the container, below their prefixes, and uploaded before the success is reported", async () => {
    await bucket("input", { "data/2026/a.txt": "from the bucket", "secret.txt": "not in the prefix" })
    await bucket("output")
    const script =
      "cat /in/a.txt > /out/copy.txt; head -c 300000 /dev/zero > /out/big; cat /in/../in/secret.txt || true"
    const { launch, exit } = await launchVm(script, {
      in: { bucket: "input", mountPath: "/in", prefix: "/data/2026/" },
      out: { bucket: "output", mountPath: "/out", prefix: "results" },
    })
    expect((await exit).finish).toEqual({ reason: "Succeeded", exitCode: 0, time: expect.any(String) })
    const objects = await objectsOf("output")
    expect(objects["results/copy.txt"]).toBe("from the bucket")
    expect(objects["results/big"]?.length).toBe(300_000)
    expect((await gateway.logOf(launch)).toString()).toMatch(/secret.txt.*No such file/)
    await vms.expectNothingLeft(launch)
  })

  it("volumes are uploaded when the job is cancelled", async () => {
    await bucket("cancelled")
    const script =
      "echo part > /out/part; trap 'echo last > /out/last; exit 3' TERM; echo ready; while true; do sleep 0.1; done"
    const { launch, exit } = await launchVm(script, { out: { bucket: "cancelled", mountPath: "/out" } })
    await until("it runs", async () => (await gateway.logOf(launch)).includes("ready"))
    await fixture.end(launch)
    expect((await exit).finish).toMatchObject({ reason: "Stopped", exitCode: 3 })
    expect(await objectsOf("cancelled")).toEqual({ part: "part\n", last: "last\n" })
    await vms.expectNothingLeft(launch)
  })

  const CHECKPOINTS = { bucket: "checkpoints", mountPath: "/ckpt", prefix: "runs/job-1/ckpt", checkpoint: true }

  it("volumes for checkpoints keep what a preempted or failed job has saved", async () => {
    await bucket("checkpoints", { "runs/job-2/ckpt/state": "of another job" })
    const { exit } = await launchVm("echo 7 > /ckpt/state; exit 3", { ckpt: CHECKPOINTS })
    expect((await exit).finish).toMatchObject({ reason: "ContainerFailed", exitCode: 3 })
    expect(await objectsOf("checkpoints")).toMatchObject({ "runs/job-1/ckpt/state": "7\n" })
  })

  it("volumes for checkpoints are emptied after the job has succeeded, and only these", async () => {
    await bucket("kept")
    const script = "cat /ckpt/state && mkdir /ckpt/deep && echo 8 > /ckpt/deep/state && echo done > /out/result"
    const out = { bucket: "kept", mountPath: "/out" }
    const { launch, exit } = await launchVm(script, { ckpt: CHECKPOINTS, out })
    expect((await exit).finish).toMatchObject({ reason: "Succeeded" })
    expect((await gateway.logOf(launch)).toString()).toBe("7\n")
    expect(await objectsOf("checkpoints")).toEqual({ "runs/job-2/ckpt/state": "of another job" })
    expect(await objectsOf("kept")).toEqual({ result: "done\n" })
    await vms.expectNothingLeft(launch)
  })

  it("volumes fail the job when the bucket rejects the upload, with the reason", async () => {
    await bucket("refusing", { "a.txt": "readable" })
    using refusing = await refusingUploads(moto.url)
    change = (access) => ({ ...access, remote: { ...access.remote, endpoint: refusing.url } })
    try {
      const script = "cat /b/a.txt && echo new > /b/new.txt"
      const { launch, exit } = await launchVm(script, { b: { bucket: "refusing", mountPath: "/b" } })
      const { finish } = await exit
      expect(finish).toMatchObject({ reason: "VolumeFlushFailed", exitCode: 0 })
      expect(finish?.message).toMatch(/1 file is not in the bucket, the bucket rejects them .*AccessDenied/)
      expect((await gateway.logOf(launch)).toString()).toBe("readable")
      await vms.expectNothingLeft(launch)
    } finally {
      change = (access) => access
    }
  })

  it("volumes may be of a read-only bucket if the job writes nothing", async () => {
    await bucket("readonly", { "a.txt": "readable" })
    using refusing = await refusingUploads(moto.url)
    change = (access) => ({ ...access, remote: { ...access.remote, endpoint: refusing.url } })
    try {
      const { exit } = await launchVm("cat /b/a.txt", { b: { bucket: "readonly", mountPath: "/b" } })
      expect((await exit).finish).toMatchObject({ reason: "Succeeded" })
    } finally {
      change = (access) => access
    }
  })

  it("volumes reject each write if they are read-only, and run programs of the bucket", async () => {
    await bucket("data", { "run.sh": "#!/bin/sh\necho from the bucket\n", "a.txt": "old" })
    const script =
      "exec 2>&1; /in/run.sh; echo new > /in/b.txt; echo new > /in/a.txt; rm /in/a.txt; mkdir /in/c; cat /in/a.txt"
    const { launch, exit } = await launchVm(script, { in: { bucket: "data", mountPath: "/in", readOnly: true } })
    expect((await exit).finish?.reason).toBe("Succeeded")
    const log = (await gateway.logOf(launch)).toString()
    expect(log.match(/Read-only file system/g)).toHaveLength(4)
    expect(log).toMatch(/^from the bucket\n[\s\S]*old$/)
    expect(Object.keys(await objectsOf("data"))).toEqual(["a.txt", "run.sh"])
    await vms.expectNothingLeft(launch)
  })

  it("volumes download a file by one request, and never again if they cache reads", async () => {
    const names = Array.from({ length: 40 }, (_, index) => `${index}`)
    await bucket("many", Object.fromEntries(names.map((name) => [`small/${name}`, `content of ${name}`])))
    using proxy = await proxyTo(moto.url)
    change = (access) => ({ ...access, remote: { ...access.remote, endpoint: proxy.url } })
    try {
      const read = "cat /b/small/* > /dev/null"
      const script = `${read}; ${read}; ls -l /b/small > /dev/null; echo kept > /b/out; cat /b/small/39`
      const volumes = { b: { bucket: "many", mountPath: "/b", cache: "reads" as const } }
      const { launch, exit } = await launchVm(script, volumes)
      expect((await exit).finish?.reason).toBe("Succeeded")
      expect((await gateway.logOf(launch)).toString()).toBe("content of 39")
      const ofFiles = proxy.requests.filter((request) => request.includes("/many/small/"))
      const once = names.map((name) => `GET /many/small/${name}`)
      expect(ofFiles.map((request) => request.replace(/[?].*/, "")).sort()).toEqual(once.sort())
      expect((await objectsOf("many"))["out"]).toBe("kept\n")
    } finally {
      change = (access) => access
    }
  })

  it("volumes can do what docs/data.md says of a bucket, and nothing else", async () => {
    await bucket("limits")
    const steps = [
      "echo 1 > a; echo 2 >> a; mv a b; mkdir d; echo x > d/x; mv d e",
      "ln -s b soft || echo no symbolic link; ln b hard || echo no hard link",
      "chmod 600 b; ls -l b; df -h . | tail -1",
      "dd if=/dev/zero of=e/x bs=1 seek=3 count=1 conv=notrunc",
    ]
    const script = `cd /b; { ${steps.join("; ")}; } 2>&1`
    const { launch, exit } = await launchVm(script, { b: { bucket: "limits", mountPath: "/b" } })
    expect((await exit).finish?.reason).toBe("Succeeded")
    const log = (await gateway.logOf(launch)).toString()
    expect(log).toMatch(/no symbolic link[\s\S]*no hard link[\s\S]*-rwxrwxrwx +1 0 +0 [\s\S]*1\.0P/)
    expect(await objectsOf("limits")).toEqual({ b: "1\n2\n", "e/x": "x\n\0\0" })
  })

  it("volumes fail the job before its start when no connection has access to the bucket", async () => {
    const { launch, exit } = await launchVm("true", { b: { bucket: "nowhere", mountPath: "/b" } })
    expect((await exit).cause).toBe("refused")
    const finish = (await fixture.agentOf(launch))?.finish
    expect(finish?.reason).toBe("VolumeMountFailed")
    expect(finish?.message).toMatch(/bucket nowhere: no connection.*older has no access; newer has no access/)
  })

  it("volumes are not removed by another agent of the same host whose run has none", async () => {
    await mkdir(dirname(DRIVER_SOCKET), { recursive: true })
    await writeFile(DRIVER_SOCKET, "another agent's")
    try {
      const { exit } = await launchVm("true", {})
      expect((await exit).finish?.reason).toBe("Succeeded")
      expect(await readFile(DRIVER_SOCKET, "utf8")).toBe("another agent's")
    } finally {
      await rm(DRIVER_SOCKET, { force: true })
    }
  })

  it("volumes keep working with a new key before the old one expires", async () => {
    await bucket("renewed", { "a.txt": "readable" })
    using proxy = await proxyTo(moto.url)
    let given = 0
    change = ({ keys, ...access }) => ({
      ...access,
      remote: { ...access.remote, endpoint: proxy.url },
      keys: { secretAccessKey: "secret", ...keys, accessKeyId: `KEY${++given}` },
      expiration: new Date(Date.now() + 9000).toISOString(),
    })
    try {
      const script = "for i in $(seq 300); do echo tick > /b/$i; sleep 1; done"
      // The script ignores SIGTERM.
      const options = { stopGraceSeconds: 1 }
      const { launch, exit } = await launchVm(script, { b: { bucket: "renewed", mountPath: "/b" } }, options)
      await until("rclone uses another key", () => proxy.keys.size > 1, 90)
      await fixture.end(launch)
      expect((await exit).finish?.reason).toBe("Stopped")
      expect((await objectsOf("renewed"))["1"]).toBe("tick\n")
    } finally {
      change = (access) => access
    }
  })
})

function connection(name: string, creationTimestamp: string): StoredConnection {
  return {
    apiVersion: "berth.dev/v1alpha1",
    kind: "Connection",
    metadata: { name, namespace: "n", uid: name, resourceVersion: "1", creationTimestamp },
    spec: { type: "aws", sealedCredentials: "sealed" },
  } as StoredConnection
}

/** Starts S3 with a key that can read everything and write nothing. */
const refusingUploads = (url: string) => proxyTo(url, ["PUT", "POST"])

/** Round trip of the proxy to S3, milliseconds: what a bucket in the VM's region has. */
const ROUND_TRIP_MS = 20

/** Starts a proxy to S3 that rejects some methods, delays the others, and records the requests with their keys. */
async function proxyTo(url: string, refused: readonly string[] = []) {
  const keys = new Set<string>()
  const requests: string[] = []
  const server = createServer((req, res) => {
    const key = /Credential=([^/]+)/.exec(req.headers.authorization ?? "")?.[1]
    if (key !== undefined) keys.add(key)
    requests.push(`${req.method} ${req.url}`)
    if (refused.includes(req.method ?? "")) {
      req.resume()
      const body = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
      res.writeHead(403, { "content-type": "application/xml" }).end(body)
      return
    }
    const onward = request(`${url}${req.url}`, { method: req.method, headers: req.headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(res)
    })
    onward.on("error", () => res.destroy())
    setTimeout(() => req.pipe(onward), ROUND_TRIP_MS)
  }).listen(0, "127.0.0.1")
  await once(server, "listening")
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    keys,
    requests,
    [Symbol.dispose]: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}
