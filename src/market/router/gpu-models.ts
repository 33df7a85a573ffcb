/** GPU model for comparison: `A100-80GB` is base `a100` with 80 GiB. */
export interface ModelName {
  base: string
  /** Memory of one card; absent: cards of any size. */
  memoryGib?: number
}

/** Other names of models, without the words in NOISE. */
const ALIASES: Readonly<Record<string, ModelName>> = {
  // Google's name of the card in its a3-megagpu machines.
  h100mega: { base: "h100" },
  // Azure sells the NVL card, every other cloud the SXM module.
  h100nvl: { base: "h100", memoryGib: 94 },
  h100sxm: { base: "h100", memoryGib: 80 },
  h100sxm5: { base: "h100", memoryGib: 80 },
  h200nvl: { base: "h200" },
  rtxpro6000bse: { base: "rtxpro6000" },
  rtxpro6000server: { base: "rtxpro6000" },
  rtxpro6000blackwell: { base: "rtxpro6000" },
  rtxpro6000blackwellserveredition: { base: "rtxpro6000" },
  rtxpro4500blackwell: { base: "rtxpro4500" },
  rtxpro4500blackwellserveredition: { base: "rtxpro4500" },
}

/** Words that clouds, drivers and people put around a model. */
const NOISE = new Set(["nvidia", "tesla", "geforce", "quadro", "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "vws"])
const MODULE = /^sxm\d?$/
const SIZE = /^(\d+)(?:gb|gib|gi|g)$/
/** A size without a separator, behind the models that come in several: `a10080gb`. */
const MODEL_WITH_SIZE = /^([a-z]+\d00)(\d+)gi?b$/

/**
 * Parses a GPU model: `A100`, `a100-80gb`, `NVIDIA A100-SXM4-80GB`, `nvidia-tesla-t4`, `RTX-PRO-6000`, `V100-32GB`.
 * Ignores case, spaces, dashes and makers.
 */
export function parseModel(name: string): ModelName {
  const words = name.toLowerCase().split(/[^a-z0-9]+/)
  const [size] = words.flatMap((word) => SIZE.exec(word)?.[1] ?? [])
  const telling = words
    .filter((word) => !NOISE.has(word) && !SIZE.test(word))
    .join("")
    .replace(/^nvidia/, "")
  const [, model = telling, ownSize = size] = MODEL_WITH_SIZE.exec(telling) ?? []
  const known = ALIASES[model] ?? { base: withoutModule(model) }
  return { ...known, ...(ownSize !== undefined && { memoryGib: Number(ownSize) }) }
}

function withoutModule(model: string): string {
  const at = model.indexOf("sxm")
  return at > 0 && MODULE.test(model.slice(at)) ? model.slice(0, at) : model
}

/** Returns true if cards are of the wanted model. Nominal sizes differ by up to a GiB (B200: 179 or 180). */
export function isModel(wanted: ModelName, base: string, vramGib: number): boolean {
  return wanted.base === base && (wanted.memoryGib === undefined || Math.abs(wanted.memoryGib - vramGib) <= 1)
}

/** Accelerators of other makers carry them before a colon in the catalogue (`AMD:MI300X`); the contract's GPUs are NVIDIA's. */
export function isNvidia(model: string): boolean {
  return !model.includes(":")
}
