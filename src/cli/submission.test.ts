import { expect, test } from "vitest"
import { LIMITS } from "../core/apis/field-limits.ts"
import { arrayName, buildSubmission, type JobFlags, parseSeconds, withSetting } from "./submission.ts"

const environment = { TOKEN: "from the shell" }

function jobOf(flags: JobFlags, args: string[] = [], base?: Parameters<typeof buildSubmission>[0]["base"]) {
  return buildSubmission({ flags, args, base, environment })
}

test("flags become the fields of the body", () => {
  const flags = {
    image: "train:3",
    entrypoint: "python",
    cpu: "4",
    memory: "16Gi",
    gpu: "L4:2",
    region: ["eu"],
    cloud: ["gcp"],
    spotFirst: true,
    maxPrice: "1.5",
    maxCost: "20",
    timeout: "1h30m",
    reuse: "5m:small",
    idleLimit: "45m:gpu=2.5:cpu=10",
    maxQueue: "10m",
    grace: "90s",
    retries: "2",
    maxPreemptions: "9",
    retryOn: "75,100-119",
    growMemoryTo: "128Gi",
    maxLostVms: "0",
    after: ["prepare, array/sweep:ended", "check:failed"],
    fallbackAfter: "4",
    env: ["SEED=7", "EMPTY=", "EQUALS=a=b", "TOKEN"],
    secret: ["HUB=hub:token"],
    volume: ["data:/data", "models/run 1:/out@aws", "corpus:/in:ro:cache@gcp"],
    checkpoint: "runs/train:/ckpt",
    label: ["team=vision"],
    tag: ["nightly"],
  }
  expect(jobOf(flags, ["train.py", "--epochs", "10"])).toEqual({
    image: "train:3",
    command: ["python"],
    args: ["train.py", "--epochs", "10"],
    env: { SEED: "7", EMPTY: "", EQUALS: "a=b", TOKEN: "from the shell" },
    secretEnv: { HUB: { secret: "hub", key: "token" } },
    volumes: {
      "volume-1": { bucket: "data", mountPath: "/data" },
      "volume-2": { bucket: "models", prefix: "run 1", mountPath: "/out", connection: "aws" },
      "volume-3": { bucket: "corpus", mountPath: "/in", readOnly: true, cache: "reads", connection: "gcp" },
      checkpoint: { bucket: "runs", prefix: "train", mountPath: "/ckpt", checkpoint: true },
    },
    resources: { cpu: 4, memory: "16Gi", gpu: { model: "L4", count: 2 } },
    region: ["eu"],
    cloud: ["gcp"],
    provisioning: "spotFirst",
    maxHourlyPriceUsd: 1.5,
    maxCostUsd: 20,
    timeoutSeconds: 5400,
    idleLimit: { seconds: 2700, gpuPercent: 2.5, cpuPercent: 10 },
    reuse: { idleSeconds: 300, key: "small" },
    maxQueueSeconds: 600,
    terminationGraceSeconds: 90,
    maxRetries: 2,
    maxPreemptions: 9,
    retryRules: [{ exitCodes: [75, "100-119"], action: "newVm" }],
    maxMemory: "128Gi",
    maxLostVms: 0,
    after: [{ job: "prepare" }, { array: "sweep", outcome: "ended" }, { job: "check", outcome: "failed" }],
    fallbackAfter: 4,
    labels: { team: "vision" },
    tags: ["nightly"],
  })
})

test("a flag replaces the field of a file, and keeps the others", () => {
  const base = { name: "train", image: "train:3", env: { A: "1", B: "1" }, resources: { cpu: 2, memory: "8Gi" } }
  expect(jobOf({ env: ["B=2"], gpu: "24Gi" }, [], base)).toEqual({
    name: "train",
    image: "train:3",
    env: { A: "1", B: "2" },
    resources: { cpu: 2, memory: "8Gi", gpu: "24Gi" },
  })
  expect(jobOf({ prefix: "sweep" }, [], base)).not.toHaveProperty("name")
})

test.each([
  ["24Gi", "24Gi"],
  ["L4", { model: "L4", count: 1 }],
  ["L4:2", { model: "L4", count: 2 }],
  ["A100:80Gi", { model: "A100", vram: "80Gi" }],
])("--gpu %s is %j", (gpu, expected) => {
  expect(jobOf({ image: "a", gpu }).resources?.gpu).toEqual(expected)
})

test.each<[JobFlags, string]>([
  [{}, "A job needs an image"],
  [{ image: "a", gpu: "2" }, "--gpu 2 is no GPU"],
  [{ image: "a", gpu: "L4:0" }, "--gpu L4:0 is no GPU"],
  [{ image: "a", gpu: "L4:" }, "--gpu L4: is no GPU"],
  [{ image: "a", env: ["MISSING"] }, "--env MISSING has no value"],
  [{ image: "a", label: ["TOKEN"] }, "--label TOKEN has no value"],
  [{ image: "a", timeout: "2" }, "--timeout 2 is not a duration"],
  [{ image: "a", retries: "two" }, "--retries two is not a number"],
  [{ image: "a", retryOn: "75,OutOfMemory" }, "--retry-on 75,OutOfMemory has no exit codes: write 75 or 75,100-119."],
  [{ image: "a", after: [""] }, "--after  must name jobs or arrays"],
  [
    { image: "a", after: ["a,,b"] },
    "--after a,,b must name jobs or arrays, such as prepare, array/sweep or prepare:ended",
  ],
  [{ image: "a", after: ["a:cancelled"] }, "After : comes succeeded, failed or ended."],
  [{ image: "a", after: ["job/a"] }, "--after job/a must name jobs or arrays"],
  [{ image: "a", volume: ["data"] }, "--volume data is not a volume"],
  [{ image: "a", checkpoint: "data" }, "--checkpoint data is not a volume"],
  [{ image: "a", spot: true, spotFirst: true }, "exclude each other"],
])("%j is rejected: %s", (flags, message) => {
  expect(() => jobOf(flags)).toThrow(message)
})

test("--after replaces the prerequisites of a file", () => {
  const base = { image: "a", after: [{ job: "prepare" }] }
  expect(jobOf({}, [], base).after).toEqual([{ job: "prepare" }])
  expect(jobOf({ after: ["check"] }, [], base).after).toEqual([{ job: "check" }])
})

test("a volume of a flag replaces none of the file", () => {
  const own = { bucket: "own", mountPath: "/own" }
  const base = { image: "a", volumes: { "volume-1": own, "volume-3": own, checkpoint: own } }
  expect(jobOf({ volume: ["b:/b", "c:/c"], checkpoint: "d:/d" }, [], base).volumes).toEqual({
    ...base.volumes,
    "volume-2": { bucket: "b", mountPath: "/b" },
    "volume-4": { bucket: "c", mountPath: "/c" },
    "checkpoint-1": { bucket: "d", mountPath: "/d", checkpoint: true },
  })
})

test("a value in place of a Secret is rejected, and not repeated", () => {
  const error = (() => {
    try {
      return jobOf({ image: "a", secret: ["HUB=hunter2"] })
    } catch (thrown) {
      return String(thrown)
    }
  })()
  expect(error).toContain("--secret HUB=… must name a Secret")
  expect(error).not.toContain("hunter2")
})

test("--set changes one field, also inside of another", () => {
  const job = { image: "a", resources: { cpu: 2 } }
  expect(withSetting(job, "resources.gpu=H100:8")).toEqual({
    image: "a",
    resources: { cpu: 2, gpu: { model: "H100", count: 8 } },
  })
  expect(withSetting(job, "maxRetries=3")).toEqual({ ...job, maxRetries: 3 })
  expect(withSetting(job, "env.A.B=x")).toEqual({ ...job, env: { "A.B": "x" } })
  expect(() => withSetting(job, "image")).toThrow("FIELD=VALUE")
})

test("a duration has units", () => {
  expect(parseSeconds("--timeout", "1d2h3m4s")).toBe(86_400 + 7200 + 180 + 4)
})

test("the name of an array is valid for a prefix of any length", () => {
  const names = Array.from({ length: LIMITS.namePrefix }, (_, index) => arrayName(`${"a".repeat(index)}b-`))
  for (const name of names) {
    expect(name).toMatch(/^a*b?-[0-9a-f]{8}$/)
    expect(name.length).toBeLessThanOrEqual(LIMITS.jobArrayName)
  }
  expect(names[0]).toMatch(/^b-/)
})
