import { expect, it } from "vitest"
import { type PullLine, PullProgress } from "./pull-progress.ts"

/** Returns which of these lines of an engine, one a second, are progress, and the time of the last one. */
function advances(lines: readonly PullLine[], progress = newProgress()): boolean[] {
  return lines.map((line) => progress.advance(line))
}

function newProgress(): PullProgress {
  let seconds = 0
  return new PullProgress(() => seconds++)
}

/** Layer's state in the engine's words. */
function layer(status: string, current?: number, id = "04b10f35f15f"): PullLine {
  return { id, status, progressDetail: current === undefined ? {} : { current } }
}

/** Lines that Docker 20.10 gave for an image of one layer. */
const WHOLE: readonly PullLine[] = [
  { id: "1", status: "Pulling from team/app" },
  layer("Pulling fs layer"),
  layer("Downloading", 32_768),
  layer("Downloading", 1_998_848),
  layer("Verifying Checksum"),
  layer("Download complete"),
  layer("Extracting", 32_768),
  layer("Extracting", 3_065_635),
  layer("Pull complete"),
  { status: "Digest: sha256:10dc52d1" },
  { status: "Status: Downloaded newer image for team/app:1" },
]

it("the progress of a pull advances with each state and byte of a layer", () => {
  const expected = WHOLE.map(({ id }) => id !== undefined)
  expect(advances(WHOLE)).toEqual(expected)
})

it("the progress of a pull does not advance while the engine waits or repeats itself", () => {
  const progress = newProgress()
  advances([layer("Pulling fs layer"), layer("Downloading", 500)], progress)
  const idle = ["Waiting", "Retrying in 5 seconds", "Retrying in 4 seconds"].map((status) => layer(status))
  expect(advances([...idle, layer("Downloading", 500)], progress)).toEqual([false, false, false, false])
  expect(advances([layer("Downloading", 501)], progress)).toEqual([true])
})

it("the progress of a pull advances in another try only beyond the farthest one", () => {
  const progress = newProgress()
  advances([layer("Pulling fs layer"), layer("Downloading", 900), layer("Pull complete", undefined, "other")], progress)
  const { time } = progress
  progress.begin()
  const again = [layer("Pulling fs layer"), layer("Already exists", undefined, "other"), layer("Downloading", 900)]
  expect(advances(again, progress)).toEqual([false, false, false])
  expect(progress.time).toBe(time)
  expect(advances([layer("Downloading", 901)], progress)).toEqual([true])
  expect(progress.time).toBeGreaterThan(time)
})

it("the progress of a pull shows if a layer is being unpacked in this try", () => {
  const progress = newProgress()
  const states = [layer("Downloading", 1), layer("Extracting", 1), layer("Extracting", 2), layer("Pull complete")]
  expect(states.map((line) => [progress.advance(line), progress.isExtracting])).toEqual([
    [true, false],
    [true, true],
    [true, true],
    [true, false],
  ])
  progress.advance(layer("Extracting", 1, "other"))
  progress.begin()
  expect(progress.isExtracting).toBe(false)
})
