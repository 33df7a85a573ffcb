import { PassThrough } from "node:stream"
import { WriteStream } from "node:tty"
import { beforeEach, describe, expect, it, vi } from "vitest"
import { Terminal } from "./terminal.mjs"

/** A stream that is a terminal of this size, or a pipe, and its output. */
function output(size?: { columns: number; rows: number }) {
  const stream = new PassThrough() as PassThrough & NodeJS.WriteStream
  const { getColorDepth } = WriteStream.prototype
  if (size !== undefined) Object.assign(stream, { isTTY: true, getColorDepth, ...size })
  return { terminal: new Terminal(stream), stream, written: () => (stream.read() as Buffer | null)?.toString() ?? "" }
}

beforeEach(() => {
  for (const name of ["NO_COLOR", "FORCE_COLOR", "NODE_DISABLE_COLORS", "CI"]) vi.stubEnv(name, undefined)
  vi.stubEnv("TERM", "xterm-256color")
  return () => vi.unstubAllEnvs()
})

describe("the display on a terminal", () => {
  it("redraws a block in place, from the first column on, where Ctrl-C has left its ^C", () => {
    const { terminal, written, stream } = output({ columns: 20, rows: 10 })
    terminal.show("JOB\nhello")
    stream.write("^C")
    terminal.show("JOB\nhello running")
    terminal.settle()
    terminal.line("end")
    expect(written()).toBe("JOB\nhello\n^C\r\x1b[2A\x1b[0JJOB\nhello running\nend\n")
  })

  it("prints lines above the block, and removes a cleared block", () => {
    const { terminal, written } = output({ columns: 20, rows: 10 })
    terminal.step("starting ...")
    terminal.line("a fact")
    terminal.clear()
    terminal.line("ready")
    expect(written()).toBe("starting ...\n\r\x1b[1A\x1b[0Ja fact\nstarting ...\n\r\x1b[1A\x1b[0Jready\n")
  })

  it("cuts a line that would wrap, by its visible width", () => {
    const { terminal, written } = output({ columns: 8, rows: 10 })
    terminal.show(terminal.paint("green", "12345678"))
    expect(written()).toContain("12345678\x1b[39m\n")
    terminal.show(terminal.paint("green", "123456789"))
    expect(written()).toContain("\x1b[0J1234567…\n")
  })

  it("shows the progress of a step in one line", () => {
    const { terminal, written } = output({ columns: 60, rows: 10 })
    for (const done of [0.1, 0.2]) terminal.progress({ what: "building", done })
    expect(written()).toBe("building: 10 %\n\r\x1b[1A\x1b[0Jbuilding: 20 %\n")
  })

  it("shows no colours if NO_COLOR is set", () => {
    vi.stubEnv("NO_COLOR", "1")
    const { terminal } = output({ columns: 20, rows: 10 })
    expect(terminal.paint("red", "failed")).toBe("failed")
    vi.stubEnv("NO_COLOR", undefined)
    expect(terminal.paint("red", "failed")).toBe("\x1b[31mfailed\x1b[39m")
  })
})

describe("the display in a pipe or a log file", () => {
  it("prints plain lines only, each once", () => {
    const { terminal, written } = output()
    terminal.show("a table")
    terminal.step("starting ...")
    for (const done of [0, 0.1, 0.3]) terminal.progress({ what: "building", done })
    terminal.line(terminal.paint("red", "failed"))
    terminal.clear()
    expect(written()).toBe("starting ...\nbuilding: 0 %\nbuilding: 30 %\nfailed\n")
  })
})
