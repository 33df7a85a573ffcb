import type { Schemas } from "./client.ts"

export type Advice = Schemas["Advice"]

type Resources = Advice["advised"]["resources"]
type Part = readonly [name: string, value: string]

/** Returns the resources as a definition in YAML has them. */
export function resourcesText({ cpu, memory, gpu, disk }: Resources): string {
  const { model, count, vram } = gpu ?? {}
  const ofGpu: Part[] = [
    ["model", model ?? ""],
    ["vram", vram ?? ""],
    ["count", vram == null ? String(count ?? "") : ""],
  ]
  const parts: Part[] = [
    ["cpu", String(cpu)],
    ["memory", memory],
    ["gpu", gpu === null ? "" : `{${listed(ofGpu)}}`],
    ["disk", disk ?? ""],
  ]
  return `resources: {${listed(parts)}}`
}

function listed(parts: readonly Part[]): string {
  return parts.flatMap(([name, value]) => (value === "" ? [] : [`${name}: ${value}`])).join(", ")
}

/** Returns the flags of a command that submits a job with these resources. */
export function resourceFlags({ cpu, memory, gpu, disk }: Resources): string {
  const { model, count, vram } = gpu ?? {}
  const amount = vram ?? (count == null ? undefined : String(count))
  const ofGpu = [model, amount].filter((part) => part != null).join(":")
  return [
    `--cpu ${cpu} --memory ${memory}`,
    ...(gpu === null ? [] : [`--gpu ${ofGpu}`]),
    ...(disk === null ? [] : [`--disk ${disk}`]),
  ].join(" ")
}

/** Definition that advice is about, for people. */
export const CHANGED: Readonly<Record<Advice["kind"], string>> = {
  cronjob: "In the cronjob's definition",
  array: "In the definition of the next array",
  image: "In the next job",
}
