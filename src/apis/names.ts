/**
 * The contract names keys, connections and cronjobs more freely than Kubernetes names objects: `My_Key`, `abc-`.
 * A name that Kubernetes allows is its own `metadata.name`. Another one is folded to what is readable, followed
 * by a dot, which no name of the contract has, and by a code of what was folded: `My_Key` ⇄ `my-key.ud`. So each
 * name has one `metadata.name`, and the name can be read back from it.
 *
 *     my-key . u d
 *     └─┬──┘   │ └ in base 36: bit i is set where character i was a capital or an underscore
 *     folded   └── u: folded as it is; x: with an x at its end, since it would end with a dash
 */

/** Kubernetes' DNS-1123 subdomain, at most LONGEST_METADATA_NAME characters: what metadata.name may be. */
export const DNS_SUBDOMAIN_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
export const LONGEST_METADATA_NAME = 253

const DNS_SUBDOMAIN = new RegExp(DNS_SUBDOMAIN_PATTERN)

/** Every name that the contract allows for anything. */
const CONTRACT_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_-]*$/

const ENCODED = /^([a-z0-9][-a-z0-9]*)\.([ux])([0-9a-z]+)$/

/** The form of an id. Its letters may be of either case. */
export const UUID = /^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$/

const CODE_BASE = 36

/** Whether a text has the form of an id: an object of such a name would shadow the one of that id. */
export function isUuid(text: string): boolean {
  return UUID.test(text)
}

/**
 * The `metadata.name` of the object that has this name in the REST API; undefined when nothing can have it:
 * neither the contract nor Kubernetes allows it, it is too long, it looks like a UUID, or it is the coded form
 * of another name.
 */
export function toMetadataName(name: string): string | undefined {
  if (isUuid(name)) return undefined
  if (isMetadataName(name)) return decode(name) === undefined ? name : undefined
  if (!CONTRACT_NAME.test(name)) return undefined
  const encoded = encode(name)
  return encoded.length <= LONGEST_METADATA_NAME ? encoded : undefined
}

/** The name in the REST API of the object with this `metadata.name`: `toMetadataName` the other way round. */
export function fromMetadataName(metadataName: string): string {
  return decode(metadataName) ?? metadataName
}

/** Returns whether Kubernetes allows the text as an object's name. */
export function isMetadataName(name: string): boolean {
  return name.length <= LONGEST_METADATA_NAME && DNS_SUBDOMAIN.test(name)
}

function encode(name: string): string {
  const folded = name.toLowerCase().replaceAll("_", "-")
  let code = 0n
  for (let i = 0; i < name.length; i++) {
    if (name[i] !== folded[i]) code |= 1n << BigInt(i)
  }
  const digits = code.toString(CODE_BASE)
  return folded.endsWith("-") ? `${folded}x.x${digits}` : `${folded}.u${digits}`
}

/** The name that was coded so; undefined for every text that `encode` does not make. */
function decode(metadataName: string): string | undefined {
  const [, label = "", form, digits = ""] = ENCODED.exec(metadataName) ?? []
  if (form === undefined || metadataName.length > LONGEST_METADATA_NAME) return undefined
  const code = bigintOf(digits)
  const folded = form === "x" ? label.slice(0, -1) : label
  const name = [...folded]
    .map((character, i) => {
      if ((code >> BigInt(i)) % 2n === 0n) return character
      return character === "-" ? "_" : character.toUpperCase()
    })
    .join("")
  const isCoded = CONTRACT_NAME.test(name) && !isUuid(name) && !isMetadataName(name) && encode(name) === metadataName
  return isCoded ? name : undefined
}

function bigintOf(digits: string): bigint {
  return [...digits].reduce((sum, digit) => sum * BigInt(CODE_BASE) + BigInt(Number.parseInt(digit, CODE_BASE)), 0n)
}
