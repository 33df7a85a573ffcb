import { describe, expect, test } from "vitest"
import type { Architecture } from "../../core/apis/offer.ts"
import { choosePlatform, type ImageState } from "./inputs.ts"

const known = (...architectures: Architecture[]): ImageState => ({ state: "known", architectures })
const unknown: ImageState = { state: "unknown", why: "no answer" }

describe("the machines of a job", () => {
  test.each<[string, ImageState | undefined, ImageState | undefined, readonly Architecture[], string | undefined]>([
    ["no agent image", known("amd64", "arm64"), undefined, ["amd64", "arm64"], undefined],
    ["both for both", known("amd64", "arm64"), known("amd64", "arm64"), ["amd64", "arm64"], undefined],
    ["the agent for one", known("amd64", "arm64"), known("amd64"), ["amd64"], "Berth's agent image is for amd64 only"],
    ["the job for one", known("arm64"), known("amd64", "arm64"), ["arm64"], "the image is for arm64 only"],
    [
      "agent unknown",
      known("amd64", "arm64"),
      unknown,
      ["amd64"],
      "Berth's agent image is assumed to be for amd64 (no answer)",
    ],
    ["agent unknown, the job for the other", known("arm64"), unknown, ["arm64"], "the image is for arm64 only"],
  ])("are those that run its image and the agent's: %s", (_, image, agent, architectures, note) => {
    expect(choosePlatform(image, agent, ["amd64"])).toEqual({ architectures, ...(note !== undefined && { note }) })
  })

  test("are none where no machine runs both", () => {
    const { conflict } = choosePlatform(known("arm64"), known("amd64"), ["amd64"])
    expect(conflict).toMatch(
      /image is for arm64, but Berth's agent image is for amd64 only: push the agent image for both/,
    )
  })

  test("are the agent's if an image is assumed to run on anything", () => {
    expect(choosePlatform(unknown, known("arm64"), [])).toMatchObject({ architectures: ["arm64"] })
    expect(choosePlatform(known("arm64"), unknown, []).architectures).toEqual(["arm64"])
  })
})
