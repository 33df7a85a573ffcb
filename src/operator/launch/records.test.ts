import { expect, test } from "vitest"
import { jobOf, launchOf } from "../../../test/harness/builders.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { expiredMinutes, toMinute } from "./records.ts"

const RETENTION = { retentionSeconds: 3600 }
const RELEASED = "2026-11-29T23:58:59Z"

function releasedAt(minute: string | undefined) {
  return launchOf(jobOf(), 1, { metadata: { labels: minute === undefined ? {} : { [LABELS.released]: minute } } })
}

test.each([
  ["2026-11-30T00:58:58Z", []],
  ["2026-11-30T00:59:59Z", ["202611292358"]],
])("records that were released within a minute expire after the retention: at %s", (now, expired) => {
  const launches = [releasedAt(toMinute(new Date(RELEASED))), releasedAt(undefined)]
  expect(expiredMinutes(launches, new Date(now), RETENTION)).toEqual(expired)
})

test("several minutes expire in their order, each once, and no other value does", () => {
  const minutes = ["202611292301", "202611292300", "202611292301", "", "9", "299911292300"]
  const launches = minutes.map(releasedAt)
  expect(expiredMinutes(launches, new Date("2026-11-30T12:00:00Z"), RETENTION)).toEqual([
    "202611292300",
    "202611292301",
  ])
})
