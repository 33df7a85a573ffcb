import fc from "fast-check"
import { describe, expect, it } from "vitest"
import {
  type Filters,
  filtersIn,
  inputTime,
  isNarrowed,
  NO_FILTERS,
  ORDERS,
  pathOf,
  queryOf,
  SPAN_TEXTS,
  STATUSES,
  timeOfInput,
} from "./job-filters.ts"

const read = (path: string): Filters => filtersIn(new URL(path, "https://berth.example").searchParams)

const text = fc.string({ maxLength: 6 })
const time = fc.option(
  fc.date({ min: new Date(0), max: new Date(4e12), noInvalidDate: true }).map((date) => date.toISOString()),
  { nil: "" },
)
const span = fc.constantFrom(...SPAN_TEXTS.map(([one]) => one))
const filters = fc
  .record({
    status: fc.constantFrom("" as const, ...STATUSES),
    name: text,
    tag: fc.array(text, { maxLength: 2 }),
    label: fc.array(text, { maxLength: 2 }),
    cronjob: text,
    array: text,
    submitted: span,
    created_after: time,
    created_before: time,
    ended: span,
    ended_after: time,
    ended_before: time,
    order: fc.constantFrom(...ORDERS),
    group: fc.constantFrom("" as const, "origin" as const),
    offset: fc.nat(500),
  })
  .map(({ order: [sort_by, sort_order], ...others }): Filters => ({ ...others, sort_by, sort_order }))

/** Returns the filters without times that their period does not use. */
function used(of: Filters): Filters {
  return {
    ...of,
    ...(of.submitted !== "between" && { created_after: "", created_before: "" }),
    ...(of.ended !== "between" && { ended_after: "", ended_before: "" }),
  }
}

describe("the filters of the list of jobs", () => {
  it("are the same after a way through the address", () => {
    fc.assert(
      fc.property(filters, (of) => {
        expect(read(pathOf(of))).toEqual(used(of))
      }),
    )
    expect(pathOf({})).toBe("/jobs")
    expect(pathOf({ status: "failed", ended: "24h", sort_by: "ended_at" })).toBe(
      "/jobs?status=failed&ended=24h&sort_by=ended_at",
    )
  })

  it("are none where an address has what they can't be", () => {
    const wrong = "/jobs?status=done&submitted=1y&ended_after=soon&sort_by=size&sort_order=up&group=x&offset=-3"
    expect(read(wrong)).toEqual(NO_FILTERS)
    expect(read("/jobs?ended_after=2026-01-01T00:00:00Z").ended).toBe("between")
  })

  it("ask the API for a period that ends now, or for the given times", () => {
    const now = Date.parse("2026-11-24T12:00:00Z")
    expect(queryOf(read("/jobs?submitted=24h&name=train&group=origin"), now)).toMatchObject({
      name_contains: "train",
      created_after: "2026-11-23T12:00:00.000Z",
      created_before: "",
      ended_after: "",
    })
    expect(queryOf(read("/jobs?ended_before=2026-01-01T00:00:00Z"), now)).toMatchObject({
      created_after: "",
      ended_after: "",
      ended_before: "2026-01-01T00:00:00Z",
    })
    expect(Object.keys(queryOf(NO_FILTERS, now))).not.toContain("group")
  })

  it("are narrow if they choose among the jobs of an array", () => {
    const wide = ["", "?array=a", "?sort_by=cost&group=origin&offset=50"]
    const narrow = ["?status=failed", "?name=a", "?tag=a", "?label=a=b", "?submitted=1h", "?ended=1h"]
    expect(wide.map((one) => isNarrowed(read(`/jobs${one}`)))).toEqual([false, false, false])
    expect(new Set(narrow.map((one) => isNarrowed(read(`/jobs${one}`))))).toEqual(new Set([true]))
  })

  it("have times to the minute in the reader's zone", () => {
    const iso = "2026-03-29T10:20:00.000Z"
    for (const zone of ["utc", "local"] as const) expect(timeOfInput(inputTime(iso, zone), zone)).toBe(iso)
    expect(inputTime(iso, "utc")).toBe("2026-03-29T10:20")
    expect([inputTime("", "utc"), timeOfInput("", "local")]).toEqual(["", ""])
  })
})
