import { describe, expect, it } from "vitest"
import { jobOf } from "../../../test/harness/builders.ts"
import type { StoredJob } from "../apis/job.ts"
import { jobEnd, wantsJob, wantsType } from "./events.ts"
import { buildMessage, publicRecord } from "./message.ts"
import { messageId } from "./message-id.ts"
import { RETRY_DEFAULTS, retryAfter } from "./retry.ts"
import { secretIn, webhookReceiver } from "./secret.ts"
import { newSigningSecret, signedHeaders, signingSecretError } from "./signature.ts"

const NOW = new Date("2026-01-31T12:00:00Z")

describe("the end of a job", () => {
  const ended = (phase: string, conditions: object[]) =>
    jobOf({ status: { phase, conditions, completionTime: "2026-01-31T10:00:00Z" } as NonNullable<StoredJob["status"]> })

  it.each([
    ["succeeded", "Complete", "job.succeeded"],
    ["failed", "Failed", "job.failed"],
    ["cancelled", "Failed", "job.cancelled"],
  ])("has the time at which the operator wrote it: %s", (phase, type, event) => {
    const condition = { type, status: "True", lastTransitionTime: "2026-01-31T11:00:00Z", reason: "A", message: "" }
    expect(jobEnd(ended(phase, [condition]))).toEqual({ type: event, time: "2026-01-31T11:00:00Z" })
  })

  it("has the time of the container's end without a condition", () => {
    expect(jobEnd(ended("failed", []))?.time).toBe("2026-01-31T10:00:00Z")
  })

  it("is absent while the job runs", () => {
    expect(jobEnd(ended("running", []))).toBeUndefined()
  })
})

describe("selection", () => {
  it("takes job.* as all ends of jobs, and nothing else", () => {
    expect(wantsType({ events: ["job.*"] }, "job.cancelled")).toBe(true)
    expect(wantsType({ events: ["job.*"] }, "budget.threshold")).toBe(false)
    expect(wantsType({ events: ["job.failed"] }, "job.succeeded")).toBe(false)
  })

  it("requires all labels and tags", () => {
    const job = jobOf({ spec: { labels: { team: "ml", stage: "test" }, tags: ["a", "b"] } })
    const events = ["job.failed" as const]
    expect(wantsJob({ events }, job)).toBe(true)
    expect(wantsJob({ events, labels: { team: "ml" }, tags: ["b"] }, job)).toBe(true)
    expect(wantsJob({ events, labels: { team: "web" } }, job)).toBe(false)
    expect(wantsJob({ events, tags: ["a", "c"] }, job)).toBe(false)
    expect(wantsJob({ events: ["budget.threshold"] }, job)).toBe(false)
  })
})

describe("the id of a message", () => {
  it("is a UUID of version 5, the same for the same event", () => {
    const id = messageId("hook", ["job", "job.failed", "2026-01-31T12:00:00Z"])
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(messageId("hook", ["job", "job.failed", "2026-01-31T12:00:00Z"])).toBe(id)
  })

  it("differs with each part, however the parts are joined", () => {
    const ids = [["a", "b"], ["ab"], ["a", "b", ""], ["b", "a"]].map((event) => messageId("hook", event))
    expect(new Set([...ids, messageId("other", ["a", "b"])]).size).toBe(5)
  })

  it("never changes between versions of Berth", () => {
    expect(messageId("hook", ["a"])).toBe("9ca84d88-94c2-505f-a9a3-ede37d3bfafb")
  })
})

describe("retries", () => {
  const failed = (attempts: number, firstAttemptTime = NOW.toISOString()) => ({ attempts, firstAttemptTime })
  const steady = { random: 0.5 }

  it("wait from 5 s to 24 h", () => {
    const delays = Array.from({ length: 11 }, (_, i) => retryAfter(failed(i + 1), NOW, steady))
    expect(delays).toEqual([5, 15, 45, 135, 405, 1215, 3645, 10_935, 32_805, 86_400, 86_400])
  })

  it("differ by a fifth at random", () => {
    expect([0, 0.999_999].map((random) => Math.round(retryAfter(failed(1), NOW, { random }) ?? 0))).toEqual([4, 6])
  })

  it("end after 3 days", () => {
    const ago = (days: number) => new Date(NOW.getTime() - days * 86_400_000).toISOString()
    expect(retryAfter(failed(12, ago(2.99)), NOW, steady)).toBe(RETRY_DEFAULTS.longestSeconds)
    expect(retryAfter(failed(12, ago(3)), NOW, steady)).toBeUndefined()
  })
})

describe("a signing secret", () => {
  it("is accepted with 24 to 64 bytes", () => {
    expect(signingSecretError(newSigningSecret())).toBeUndefined()
    for (const bytes of [24, 64])
      expect(signingSecretError(`whsec_${Buffer.alloc(bytes).toString("base64")}`)).toBeUndefined()
  })

  it.each([
    "",
    "whsec_",
    "AAAA",
    `whsec_${Buffer.alloc(23).toString("base64")}`,
    "whsec_not base64!",
    `whsec_${Buffer.alloc(65).toString("base64")}`,
  ])("is rejected, and not shown: %j", (secret) => {
    const error = signingSecretError(secret)
    expect(error).toMatch(/^must be whsec_/)
    if (secret.length > 6) expect(error).not.toContain(secret.slice(6))
  })

  it("signs the example of the specification", () => {
    const secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
    const headers = signedHeaders("msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}', {
      secrets,
      now: new Date(1_614_265_330_000),
    })
    expect(headers).toEqual({
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    })
  })
})

describe("the secrets of a webhook", () => {
  const secret = newSigningSecret()
  const previousSecret = newSigningSecret()
  const url = "https://ci.example.com"

  it("gives the receiver two secrets while one is rotated", () => {
    const rotating = { secret, previousSecret, previousUntil: "2026-01-31T12:00:01Z" }
    expect(webhookReceiver({ url }, rotating, NOW)).toEqual({ url, secrets: [secret, previousSecret] })
    expect(webhookReceiver({ url }, rotating, new Date("2026-01-31T12:00:01Z"))).toEqual({ url, secrets: [secret] })
  })

  it("reads the keys of a Secret, without spaces around them", () => {
    const data = { secret: btoa(`${secret}\n`), previous_secret: btoa(""), url: btoa(url) }
    expect(secretIn(data)).toEqual({ secret, url })
  })

  it("requires an address and, except for Slack, a signing secret", () => {
    expect(webhookReceiver({}, {}, NOW)).toEqual({
      errors: [
        "url is missing: set spec.url, or the key url of the secret",
        "the key secret is missing: it signs the messages",
      ],
    })
    expect(webhookReceiver({ format: "slack" }, { url }, NOW)).toEqual({ url, secrets: [] })
  })

  it.each(["ftp://a", "https://me:password@a", "https://?"])(
    "rejects the secret address %s without showing it",
    (bad) => {
      const result = webhookReceiver({ format: "slack" }, { url: bad }, NOW)
      expect(result).toHaveProperty("errors")
      expect(JSON.stringify(result)).not.toContain(bad)
    },
  )
})

describe("messages", () => {
  const event = {
    ...{ id: "1", type: "job.failed" as const, project: "train-x1", subject: "jobs/a", time: "2026-01-31T12:00:00Z" },
    data: { reason: "ContainerFailed", message: "exit code 1 <!channel> & more", actual_cost: 0.5 },
  }

  it("are CloudEvents by default", () => {
    const { body, contentType } = buildMessage(event, {})
    expect(contentType).toBe("application/cloudevents+json; charset=utf-8")
    expect(JSON.parse(body)).toEqual({
      ...{ specversion: "1.0", id: "1", source: "/projects/train-x1", type: "dev.berth.job.failed.v1" },
      ...{ subject: "jobs/a", time: event.time, datacontenttype: "application/json", data: event.data },
    })
  })

  it("mention no user of Slack, whatever a job prints", () => {
    const { text } = JSON.parse(buildMessage(event, { format: "slack" }).body) as { text: string }
    expect(text).toBe(
      ":x: *job.failed* `jobs/a` in project train-x1\nContainerFailed: exit code 1 &lt;!channel&gt; &amp; more\ncost $0.5000",
    )
  })

  it("show output to Slack as one block of code, which the output can't end", () => {
    const data = { message: "exit code 1", output: "a\n``` <!channel>" }
    const { text } = JSON.parse(buildMessage({ ...event, data }, { format: "slack" }).body) as { text: string }
    expect(text.split("\n").slice(1).join("\n")).toBe("exit code 1\n```\na\n''' &lt;!channel&gt;\n```")
  })

  it("have env, command and args only if the webhook asks", () => {
    const record = { id: "1", env: { A: "1" }, command: ["a"], args: ["b"] }
    expect(publicRecord(record)).toEqual({ id: "1" })
    expect(publicRecord(record, ["env"])).toEqual({ id: "1", env: { A: "1" } })
  })
})
