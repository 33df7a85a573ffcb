import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { systemClock } from "../core/apis/clock.ts"
import type { RunOrder } from "../core/protocol/protocol.ts"
import { lastLine, readLastLine } from "./last-line.ts"
import { Spool } from "./spool.ts"

const of = (output: string | Buffer, ...secrets: string[]) => lastLine(Buffer.from(output), { secrets })

describe("the last line of an output", () => {
  it.each([
    ["no output", "", undefined],
    ["only empty lines", "\n \n\r\n\t\n", undefined],
    ["no newline at its end", "first\nImportError: No module named 'x'", "ImportError: No module named 'x'"],
    ["empty lines after it", "first\nlast\n\n  \n", "last"],
    ["Windows' ends of lines", "first\r\nlast\r\n", "last"],
    ["colors", "\x1b[1;31mError:\x1b[0m no \x1b[38;5;9mdisk\x1b[0m\n", "Error: no disk"],
    ["a title and a link", "\x1b]0;title\x07\x1b]8;;https://a.example\x1b\\see\x1b]8;;\x1b\\\n", "see"],
    ["a sequence that the end cuts", "broken \x1b[3", "broken 3"],
    ["a progress bar", "  5%|#\r 50%|#####\r100%|##########\n", "100%|##########"],
    ["a shorter text over a longer one", "downloading\rdone\n", "doneloading"],
    ["an erased line", "downloading\r\x1b[Kdone\n", "done"],
    ["an erased line, as a spinner writes it", "spinning\x1b[2K\x1b[1Gdone\n", "done"],
    ["backspaces", "50%\b\b\b60%\n", "60%"],
    ["tabs", "\ta\tb\n", "a b"],
    ["control characters and marks of direction", "a\0b\x07c\u202ed\u2066e\u2028f\u009bg\n", "abcdefg"],
    ["two columns wide characters", "失败: 磁盘已满\n", "失败: 磁盘已满"],
  ])("is found with %s", (_what, output, line) => {
    expect(of(output)).toBe(line)
  })

  it("is text even if the output is no UTF-8", () => {
    expect(of(Buffer.from([0xff, 0xfe, 0x61, 0xe2, 0x82, 0x0a]))).toBe("\ufffd\ufffda\ufffd")
  })

  it("keeps the beginning of a long line, in 256 bytes of JSON, without half a character", () => {
    const long = `ValueError: ${"x".repeat(100 * 1024)}`
    expect(of(long)).toBe(`${long.slice(0, 253)}…`)
    for (const text of ["ü", "失", "😀", '"', "\\", "a失"]) {
      const cut = of(text.repeat(300)) ?? ""
      const bytes = Buffer.byteLength(JSON.stringify(cut)) - 2
      expect(bytes).toBeLessThanOrEqual(256)
      expect(bytes).toBeGreaterThan(245)
      expect(cut.isWellFormed()).toBe(true)
    }
    expect(of("y".repeat(256))).toBe("y".repeat(256))
  })
})

describe("a secret in the last line", () => {
  const SECRET = "s3cr3t-canary"

  it.each([
    ["as it is", `login failed: ${SECRET}!`, "login failed: ***!"],
    ["several times", `${SECRET}${SECRET} ${SECRET}`, "*** ***"],
    ["over the limit of the line", `${"x".repeat(250)}${SECRET}${"y".repeat(100)}`, `${"x".repeat(250)}***…`],
    ["in colors", "key s3cr\x1b[1m3t-can\x1b[0mary", "key ***"],
    ["under a shorter text", `${SECRET}\rX`, "X***"],
    ["over its own beginning", `s3cr3t\b\b\b\b\b\b${SECRET}`, "***"],
  ])("is masked %s", (_how, output, line) => {
    expect(of(`first\n${output}\n`, SECRET)).toBe(line)
  })

  it("is masked if it overlaps with another one, or has another one in it", () => {
    expect(of("abcdefghi", "abcdef", "defghi")).toBe("***")
    expect(of("token=abc-def-ghi.", "def", "abc-def-ghi")).toBe("token=***.")
    expect(of("aaaa", "aaa")).toBe("***")
  })

  it("is masked line by line, without the spaces around", () => {
    const key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0BAQ\r\n-----END KEY-----\n"
    expect(of(`loaded MIIEvQIBADANBg and kqhkiG9w0BAQ\n`, key)).toBe("loaded *** and ***")
    expect(of(`key=${key}`, key)).toBe("***")
  })

  it("stays if it has one or two characters, because gaps would show it", () => {
    expect(of("port 8080 is in use", "8", "80")).toBe("port 8080 is in use")
  })
})

describe("readLastLine", () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-last-line-"))
  })
  afterEach(() => rm(folder, { recursive: true, force: true }))

  const open = () => Spool.open(join(folder, "output"), { clock: systemClock, limit: 4e6, onAppend: () => undefined })
  const ORDER: RunOrder = {
    run: { image: "busybox" },
    secretEnv: { TOKEN: "new-token" },
    gpus: 0,
    registry: { registry: "r.example", password: "registry-pass" },
    buckets: {
      data: {
        path: "b",
        remote: { type: "azureblob", key: "azure-key" },
        keys: { accessKeyId: "AKID", secretAccessKey: "aws-key" },
      },
    },
  }

  it("reads only the attempt's own output, also after the spool was opened again", async () => {
    {
      await using spool = await open()
      await spool.append(Buffer.from("of attempt 1\n"))
      const start = spool.length
      expect(await readLastLine(spool, start, { order: ORDER })).toBeUndefined()
      await spool.append(Buffer.from("of attempt 2\n"))
    }
    await using spool = await open()
    expect(await readLastLine(spool, 13, { order: ORDER })).toBe("of attempt 2")
    expect(await readLastLine(spool, 0, { order: ORDER })).toBe("of attempt 2")
  })

  it("shows no credentials of the order, and no value that the container had before a rotation", async () => {
    await using spool = await open()
    await spool.append(Buffer.from("new-token old=token registry-pass azure-key AKID aws-key plain\n"))
    const env = ["PATH=/bin", "TOKEN=old=token", "MODE=plain"]
    expect(await readLastLine(spool, 0, { order: ORDER, env })).toBe("*** *** *** *** *** *** plain")
  })

  it("has no part of a secret that begins before what it reads", async () => {
    await using spool = await open()
    const secret = Array.from({ length: 3000 }, (_, index) => index.toString(36)).join("-")
    await spool.append(Buffer.from(`${secret} ${"x".repeat(256 * 1024 - 40)}\n`))
    const line = await readLastLine(spool, 0, { order: { ...ORDER, secretEnv: { BIG: secret } } })
    expect(line).toBe(`***${"x".repeat(250)}…`)
  })
})
