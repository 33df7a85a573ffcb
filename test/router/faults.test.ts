import { describe, expect, test } from "vitest"
import { JOB } from "../../src/core/apis/job.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { Catalogue, createCatalogue } from "../../src/market/router/catalogue.ts"
import { catalogueErrors, modelNames, regionNames } from "../../src/market/router/catalogue-errors.ts"
import { offerOf } from "../harness/builders.ts"

const catalogue = new Catalogue(buildOffers(readPriceList()))

/** Returns the faults that the schema and the catalogue find, asked like the REST API and the router ask. */
function faults(spec: object): string[] {
  const ofSchema = findErrors(JOB.spec, { image: "busybox", ...spec })
  return [...ofSchema, ...(ofSchema.length > 0 ? [] : catalogueErrors(spec, catalogue))].map(
    ({ pointer, detail }) => `${pointer}: ${detail}`,
  )
}

describe("the faults of a request", () => {
  test.each<[string, object, string, RegExp[]]>([
    ["an unknown cloud", { cloud: ["amazon"] }, "/cloud/0", [/"amazon"/, /known clouds: aws, azure, gcp, nebius/]],
    ["a cloud in capitals", { cloud: ["AWS"] }, "/cloud/0", [/did you mean aws\?/]],
    [
      "an unknown region",
      { region: ["eu-west-9"] },
      "/region/0",
      [/"eu-west-9"/, /did you mean eu-west-\d\?/, /eea, eu/],
    ],
    ["an unknown group", { region: ["europe"] }, "/region/0", [/"europe"/, /af, asia, au, ca/]],
    ["another cloud's region", { cloud: ["gcp"], region: ["us-east-1"] }, "/region/0", [/is in aws/, /us-central1/]],
    ["an unknown second cloud of several", { region: ["eu", "mars"] }, "/region/1", [/"mars"/, /allowed: /]],
    [
      "an unknown model",
      { resources: { gpu: { model: "H1000" } } },
      "/resources/gpu/model",
      [/"H1000"/, /did you mean H\w+\?/, /A100, A100-80GB, A10G/],
    ],
    [
      "a model with two neighbours, of which the cheaper is suggested",
      { resources: { gpu: { model: "A10" } } },
      "/resources/gpu/model",
      [/"A10" is unknown \(did you mean A10G\?\)/],
    ],
    [
      "a GPU model in a size that doesn't exist",
      { resources: { gpu: { model: "A100-60GB" } } },
      "/resources/gpu/model",
      [/"A100-60GB"/, /known models: /],
    ],
    [
      "a GPU of another maker",
      { resources: { gpu: { model: "MI300X" } } },
      "/resources/gpu/model",
      [/made by AMD/, /only NVIDIA/],
    ],
    [
      "GPUs without a model",
      { resources: { gpu: { count: 2 } } },
      "/resources/gpu/model",
      [/gpu\.count requires .*gpu\.model/],
    ],
    ["zero GPUs", { resources: { gpu: { model: "T4", count: 0 } } }, "/resources/gpu/count", [/at least 1, not 0/]],
    ["half a GPU", { resources: { gpu: { model: "T4", count: 0.5 } } }, "/resources/gpu/count", [/0\.5/]],
    ["an empty gpu", { resources: { gpu: {} } }, "/resources/gpu", [/must not be empty/]],
    ["vram without a unit", { resources: { gpu: { vram: "24" } } }, "/resources/gpu/vram", [/"24"/, /such as 4Gi/]],
    ["vram in GB", { resources: { gpu: { vram: "24GB" } } }, "/resources/gpu/vram", [/"24GB"/, /Ki, Mi, Gi/]],
    ["memory without a unit", { resources: { memory: "4" } }, "/resources/memory", [/"4"/, /such as 4Gi/]],
    ["no memory", { resources: { memory: "0Gi" } }, "/resources/memory", [/"0Gi"/]],
    ["negative memory", { resources: { memory: "-1Gi" } }, "/resources/memory", [/"-1Gi"/]],
    ["a number of bytes", { resources: { memory: 4096 } }, "/resources/memory", [/in quotes/]],
    ["no cpu", { resources: { cpu: 0 } }, "/resources/cpu", [/at least 1, not 0|such as 2/]],
    ["negative cpu", { resources: { cpu: "-1" } }, "/resources/cpu", [/"-1"/, /such as 2/]],
    ["cpu in words", { resources: { cpu: "two" } }, "/resources/cpu", [/"two"/, /"500m"/]],
  ])("name the field, the value and the allowed values: %s", (_, spec, pointer, texts) => {
    const found = faults(spec)
    expect(found).toHaveLength(1)
    expect(found[0]?.split(": ")[0]).toBe(pointer)
    for (const text of texts) expect(found[0]).toMatch(text)
  })

  test("list the regions only for a region where no group is allowed", () => {
    const local = createCatalogue([offerOf({ cloud: "local", region: "local" })])
    const [error] = catalogueErrors({ cloud: ["local"], region: ["eu"] }, local, ["local"])
    expect(error?.detail).toBe('region "eu" is unknown; allowed: the regions local')
  })

  test.each([
    [{ cloud: ["aws", "gcp"], region: ["us", "europe-west4"] }],
    [{ region: ["us-gov-west-1", "uk", "ch", "eea", "au"] }],
    [{ resources: { gpu: { model: "a100-80gb" } } }],
    [{ resources: { gpu: { model: "nvidia-tesla-t4", count: 2 } } }],
    [{ resources: { cpu: "500m", memory: "1.5Ti", gpu: { vram: "80G" } } }],
    [{}],
  ])("are none for %j", (spec) => {
    expect(faults(spec)).toEqual([])
  })

  test("point to a single cloud or region without an index", () => {
    const found = catalogueErrors({ cloud: "amazon", region: "mars" }, catalogue)
    expect(found.map(({ pointer }) => pointer)).toEqual(["/cloud", "/region"])
  })

  test("list every allowed name", () => {
    const groups = ["af", "asia", "au", "ca", "ch", "eea", "eu", "me", "oceania", "sa", "uk", "us"]
    expect(regionNames(catalogue).slice(0, groups.length)).toEqual(groups)
    expect(regionNames(catalogue)).toHaveLength(groups.length + 137)
    expect(regionNames(catalogue, ["gcp"])).toContain("us-central1")
    expect(regionNames(catalogue, ["gcp"])).not.toContain("us-east-1")
    expect(modelNames(catalogue)).toContain("A100-80GB")
    expect(modelNames(catalogue)).not.toContain("AMD:MI300X")
  })
})
