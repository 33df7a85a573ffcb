import { describe, expect, it } from "vitest"
import { GpuReader } from "./nvidia-smi.ts"

/** Reads these lines every second, and one more round, which ends the last one. */
function read(rounds: readonly string[], { cards = 1, seconds = rounds.length } = {}) {
  const reader = new GpuReader(cards)
  for (const round of [...rounds, rounds.at(-1)]) reader.add(`${round}\n`)
  return reader.take(seconds)
}

/** Returns what a card shows for five seconds. */
const always = (round: string, cards = 1) => read([round, round, round, round, round], { cards })

describe("the reader of nvidia-smi", () => {
  // Index, utilization and memory in recorded output of real cards. The cards named with a driver are from
  // https://github.com/utkuozdemir/nvidia_gpu_exporter/tree/e656cd8/internal/captures, idle and under load.
  it.each<[string, string, number, ReturnType<GpuReader["take"]>]>([
    ["an idle H100 (590.48.01)", "0, 0, 0", 1, { mean: 0, highest: 0, vramMib: 0 }],
    ["a busy H100 (590.48.01)", "0, 100, 19818", 1, { mean: 100, highest: 100, vramMib: 19_818 }],
    ["a busy H200 (590.48.01)", "0, 100, 32362", 1, { mean: 100, highest: 100, vramMib: 32_362 }],
    ["a busy L40S (595.80)", "0, 9, 1235", 1, { mean: 9, highest: 9, vramMib: 1235 }],
    // https://github.com/CHTC/templates-GPUs/pull/24
    [
      "three A100 (515.48.07)",
      "0, 100, 7488\n1, 100, 7500\n2, 99, 7500",
      3,
      { mean: 299 / 3, highest: 100, vramMib: 22_488 },
    ],
    ["an H100 with MIG (590.48.01)", "0, [N/A], 11125", 1, { vramMib: 11_125 }],
    // https://github.com/Lurkki14/tuxclocker/issues/15, driver 410.78
    ["a GTX 650", "0, [Not Supported], 120", 1, { vramMib: 120 }],
    // https://github.com/mostlygeek/llama-swap/issues/782
    ["a GB10, whose memory is the machine's", "0, 35, [N/A]", 1, { mean: 35, highest: 35 }],
    ["cards of which one has MIG", "0, 90, 100\n1, [N/A], 100", 2, { vramMib: 200 }],
  ])("reads %s", (_card, round, cards, use) => {
    expect(always(round, cards)).toEqual(use)
  })

  // https://github.com/NVIDIA/nvidia-container-toolkit/issues/69 has the line of a lost card.
  it.each([
    ["a lost card", "0, 5, 10\nUnable to determine the device handle for GPU0000:65:00.0: Unknown Error", 2],
    ["no driver", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 1],
    ["no card", "No devices were found", 1],
    ["fewer cards than the run has", "0, 5, 10", 2],
    ["another format", "0, 5 %, 10 MiB", 1],
  ])("knows nothing of a sample with %s", (_what, round, cards) => {
    expect(always(round, cards)).toBeUndefined()
  })

  it("finds the highest reading of any second and card", () => {
    expect(read(["0, 0, 10\n1, 0, 10", "0, 0, 30\n1, 60, 10", "0, 0, 10\n1, 0, 10"], { cards: 2 })).toEqual({
      ...{ mean: 10, highest: 60, vramMib: 40 },
    })
  })

  it("reads lines that are cut anywhere, and the line ends of a terminal", () => {
    const output = "0, 1, 10\r\n1, 2, 20\r\n".repeat(6)
    for (const size of [1, 2, 3, 7, 100]) {
      const reader = new GpuReader(2)
      for (let at = 0; at < output.length; at += size) reader.add(output.slice(at, at + size))
      expect(reader.take(5)).toEqual({ mean: 1.5, highest: 2, vramMib: 30 })
    }
  })

  it("knows nothing of a sample in which the program started again, and forgets the line that was cut", () => {
    const reader = new GpuReader(1)
    reader.add("0, 1, 10\n0, 1, 10\n0, 1, 1")
    reader.restart()
    reader.add("0, 1, 10\n".repeat(6))
    expect(reader.take(5)).toBeUndefined()
    reader.add("0, 1, 10\n".repeat(5))
    expect(reader.take(5)).toEqual({ mean: 1, highest: 1, vramMib: 10 })
  })

  it("knows nothing of a sample with too few rounds, in which a short burst may be", () => {
    const reader = new GpuReader(1)
    expect(reader.take(5)).toBeUndefined()
    reader.add("0, 0, 10\n0, 0, 10\n")
    expect(reader.take(5)).toBeUndefined()
  })

  it("keeps a bounded part of an output that is not taken", () => {
    const reader = new GpuReader(1)
    reader.add("0, 1, 10\n".repeat(100_000))
    reader.add("x".repeat(100_000))
    expect(reader.take(100_000)).toBeUndefined()
  })
})
