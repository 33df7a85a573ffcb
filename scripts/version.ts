/** Versions of Berth, and their spellings elsewhere. All of it is pure. */

/** Version by semantic versioning: https://semver.org. */
export interface Version {
  /** Without the part behind the hyphen, such as 0.2.0. A candidate comes before it. */
  release: string
  /** Major and minor number, by which neighbours count, such as 0.2. */
  minor: string
  /** Number of the candidate, from 1; undefined for the release itself. */
  candidate: string | undefined
}

const FORM = /^(?<release>(?<minor>\d+\.\d+)\.\d+)(?:-rc\.(?<candidate>[1-9]\d*))?$/

/** @throws Error if the text is neither a release nor a candidate */
export function parseVersion(text: string): Version {
  const { release, minor, candidate } = FORM.exec(text)?.groups ?? {}
  if (release === undefined || minor === undefined)
    throw new Error(`the version ${text} is neither like 0.2.0 nor, for a candidate, like 0.2.0-rc.1`)
  return { release, minor, candidate }
}

/** Returns the version as Python spells it: https://packaging.python.org/en/latest/specifications/version-specifiers/ */
export function pythonVersion(text: string): string {
  const { release, candidate } = parseVersion(text)
  return candidate === undefined ? release : `${release}rc${candidate}`
}

/**
 * Returns the range of Flux that takes this version and what follows it in its minor version. Only a range with a hyphen
 * takes candidates: https://github.com/Masterminds/semver#working-with-prerelease-versions.
 */
export function fluxRange(text: string): string {
  const { minor, candidate } = parseVersion(text)
  return candidate === undefined ? `${minor}.x` : `~${minor}.0-0`
}

/** Returns true for an earlier name's records that those of the version replace: another candidate of the same release. */
export function isReplacedBy(recorded: string, version: string): boolean {
  const { release, candidate } = FORM.exec(recorded)?.groups ?? {}
  return candidate !== undefined && recorded !== version && release === parseVersion(version).release
}
