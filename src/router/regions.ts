/** Groups of regions that a job may name instead of one, as the clouds themselves group them by geography. */
export const MACRO_REGIONS = ["us", "ca", "sa", "eu", "uk", "asia", "au", "me", "af"] as const
export type MacroRegion = (typeof MACRO_REGIONS)[number]

/**
 * How each cloud's region names tell where they are; the first match holds. `eu` is Europe as the clouds have it:
 * Switzerland and Norway are in it. The United Kingdom is `uk` only: whoever asks for `eu` mostly means its law.
 * Sources: the region lists of AWS, Google Cloud and Azure.
 */
const PATTERNS: Record<string, readonly (readonly [RegExp, MacroRegion])[]> = {
  aws: [
    [/^us-/, "us"],
    [/^ca-/, "ca"],
    [/^(sa|mx)-/, "sa"],
    [/^eu-west-2$/, "uk"],
    [/^eu-/, "eu"],
    [/^ap-southeast-(2|4|6)$/, "au"],
    [/^(ap|cn)-/, "asia"],
    [/^(me|il)-/, "me"],
    [/^af-/, "af"],
  ],
  gcp: [
    [/^us-/, "us"],
    [/^northamerica-south/, "sa"],
    [/^northamerica-/, "ca"],
    [/^southamerica-/, "sa"],
    [/^europe-west2$/, "uk"],
    [/^europe-/, "eu"],
    [/^australia-/, "au"],
    [/^asia-/, "asia"],
    [/^me-/, "me"],
    [/^africa-/, "af"],
  ],
  azure: [
    [/^canada/, "ca"],
    [/^(brazil|chile|mexico)/, "sa"],
    [/^uk/, "uk"],
    [/europe$|^(france|germany|switzerland|norway|sweden|poland|italy|spain|austria|belgium|denmark|finland)/, "eu"],
    [/^(australia|newzealand)/, "au"],
    [/asia$|^(japan|korea|.*india|indonesia|malaysia|taiwan|china)/, "asia"],
    [/^(uae|qatar|israel|saudi)/, "me"],
    [/^southafrica/, "af"],
    [/us\d*$/, "us"],
  ],
}

/** The macro-region that a cloud's region lies in; undefined for one that no rule knows, such as the local cloud's. */
export function macroRegionOf(cloud: string, region: string): MacroRegion | undefined {
  return PATTERNS[cloud]?.find(([pattern]) => pattern.test(region))?.[1]
}

/** Whether an offer's region is one of those wanted, by its own name or by its macro-region; none wanted: any. */
export function isInRegions(cloud: string, region: string, wanted: readonly string[]): boolean {
  if (wanted.length === 0 || wanted.includes(region)) return true
  const macro = macroRegionOf(cloud, region)
  return macro !== undefined && wanted.includes(macro)
}
