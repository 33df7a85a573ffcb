import { ANYWHERE, type Catalogue } from "./catalogue.ts"

/**
 * The scopes of lists that together hold each of a cloud's offers in the wanted regions once: a group's list where
 * the whole group is wanted, else those of single regions.
 * @param wanted names of regions or of groups of them; none: anywhere, but for restricted regions
 */
export function scopesOf(catalogue: Catalogue, cloud: string, wanted: readonly string[]): number[] {
  if (wanted.length === 0) return [ANYWHERE]
  const scopes: number[] = []
  const covered = new Set<number>()
  for (const { number, regions } of wantedGroups(catalogue, cloud, wanted)) {
    const fresh = regions.filter((region) => !covered.has(region))
    if (fresh.length === regions.length && fresh.length > 0) scopes.push(catalogue.groupScope(number))
    else scopes.push(...fresh.map((region) => catalogue.regionScope(region)))
    for (const region of fresh) covered.add(region)
  }
  for (const region of wanted.flatMap((name) => catalogue.regionNumbers(name))) {
    if (covered.has(region) || catalogue.regions[region]?.cloud !== cloud) continue
    covered.add(region)
    scopes.push(catalogue.regionScope(region))
  }
  return scopes
}

/** The widest first: what is in it need not be read again. */
function wantedGroups(catalogue: Catalogue, cloud: string, wanted: readonly string[]) {
  return wanted
    .map((name) => catalogue.groupNumber(name))
    .filter((number) => number !== undefined)
    .map((number) => ({ number, regions: catalogue.regionsOfGroup(number, cloud) }))
    .sort((a, b) => b.regions.length - a.regions.length)
}

/** By region, whether a job may go there that wants these regions; to restricted ones only if it names them. */
export function allowedRegions(catalogue: Catalogue, wanted: readonly string[]): boolean[] {
  return catalogue.regions.map(({ name, groups, restricted }) => {
    if (wanted.includes(name)) return true
    return restricted !== true && (wanted.length === 0 || groups.some((group) => wanted.includes(group)))
  })
}
