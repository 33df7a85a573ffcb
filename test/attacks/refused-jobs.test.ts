import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { JOB } from "../../src/core/apis/job.ts"
import { declareResource } from "../../src/core/kube/resource.ts"
import { items } from "../corpus/corpus.ts"
import { type AnyObject, refusalOf } from "../corpus/server.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("attacks-refused")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())

const VOLUME = { bucket: "data", mountPath: "/data" }

/** Jobs that would fail on every VM, with the place and the words of the refusal. */
const HOPELESS: [string, Record<string, unknown>, string, RegExp][] = [
  ["NUL in an argument", { args: ["a\u0000"] }, "/args/0", /without NUL/],
  ["NUL in a variable", { env: { A: "\u0000" } }, "/env/A", /without NUL/],
  ["an image in capitals", { image: "UPPER" }, "/image", /name in lower case/],
  ["an image that is a URL", { image: "http://x/y" }, "/image", /image reference/],
  ["an image whose digest is none", { image: "a@sha256:zz" }, "/image", /image reference/],
  ["a mount on the root", { volumes: { a: { ...VOLUME, mountPath: "/" } } }, "/volumes/a/mountPath", /other than \//],
  ["two mounts on one path", { volumes: { a: VOLUME, b: VOLUME } }, "/volumes/b/mountPath", /volumes.a and volumes.b/],
  [
    "a variable that is there twice",
    { env: { A: "1" }, secretEnv: { A: { secret: "s", key: "k" } } },
    "/secretEnv/A",
    /env.A and secretEnv.A have the same name/,
  ],
  [
    "arguments of 100 KB",
    { args: items(100, "x".repeat(1000)) },
    "/args",
    /^args must have at most 16384 bytes in total, not 100000$/,
  ],
]

describe("a job that would fail on every VM", () => {
  it.each(HOPELESS)(
    "is rejected by the REST API with %s, which says where and why",
    async (_, fields, pointer, words) => {
      const response = await call("/1/jobs", { body: { image: "alpine", ...fields } })
      const { errors } = await problemIn(response)
      expect(response.status).toBe(400)
      expect(errors).toEqual([{ pointer, detail: expect.stringMatching(words) }])
      const definition = { name: "nightly", cron_spec: "@daily", job_definition: { image: "alpine", ...fields } }
      const inCronJob = await problemIn(await call("/1/cronjobs", { body: definition }))
      expect(inCronJob.errors.map((fault) => fault.pointer)).toEqual([`/job_definition${pointer}`])
      expect(await jobsOf(fixture)).toEqual([])
    },
  )

  it.each(HOPELESS)("can't be created by kubectl with %s", async (_, fields) => {
    const object: AnyObject = {
      metadata: { namespace: fixture.namespace, name: "probe" },
      spec: { image: "alpine", ...fields },
    }
    expect(await refusalOf(fixture.client.create(declareResource<AnyObject>(JOB), object))).toMatch(/is invalid/)
  })

  it("is rejected by the REST API with half of a surrogate pair anywhere in a body, which Kubernetes would replace", async () => {
    const response = await call("/1/jobs", { body: '{"image":"alpine","env":{"A":"\\ud83d"}}' })
    const { errors } = await problemIn(response)
    expect(response.status).toBe(400)
    expect(errors).toEqual([{ pointer: "/env/A", detail: expect.stringMatching(/half of a surrogate pair/) }])
  })
})
