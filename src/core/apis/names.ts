/**
 * Maps names of the contract to Kubernetes' names. Names of keys, connections and cronjobs may be `My_Key` or `abc-`.
 * A name that Kubernetes allows is its own `metadata.name`. Another one is folded to lower case and dashes. A dot
 * follows, which no name of the contract has, and then a code of the folded characters: `My_Key` ⇄ `my-key.ud`. So the
 * mapping is one to one, and reversible.
 *
 *     my-key . u d
 *     └─┬──┘   │ └ in base 36: bit i is set if character i was a capital or an underscore
 *     folded   └── u: folded only; x: an x was appended, because the name ended with a dash
 */

/** Kubernetes' DNS-1123 subdomain of at most LONGEST_METADATA_NAME characters, the syntax of metadata.name. */
export const DNS_SUBDOMAIN_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
export const LONGEST_METADATA_NAME = 253

const DNS_SUBDOMAIN = new RegExp(DNS_SUBDOMAIN_PATTERN)

/** Syntax of every name in the contract. */
const CONTRACT_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_-]*$/

const ENCODED = /^([a-z0-9][-a-z0-9]*)\.([ux])([0-9a-z]+)$/

/** Syntax of an id, in upper or lower case. */
export const UUID = /^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$/

const CODE_BASE = 36

/** Returns true if a text has the syntax of an id. An object with such a name would hide the object with this id. */
export function isUuid(text: string): boolean {
  return UUID.test(text)
}

/**
 * Returns the `metadata.name` of a name in the REST API. Returns undefined if no object can have the name: its syntax
 * is not allowed, it is too long, it is a UUID, or it is the coded form of another name.
 */
export function toMetadataName(name: string): string | undefined {
  if (isUuid(name)) return undefined
  if (isMetadataName(name)) return decode(name) === undefined ? name : undefined
  if (!CONTRACT_NAME.test(name)) return undefined
  const encoded = encode(name)
  return encoded.length <= LONGEST_METADATA_NAME ? encoded : undefined
}

/** Returns the REST API's name of the object with this `metadata.name`. Inverse of `toMetadataName`. */
export function fromMetadataName(metadataName: string): string {
  return decode(metadataName) ?? metadataName
}

/** Returns true if Kubernetes allows the text as an object's name. */
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

/** Returns the name that was coded, or undefined for a text that `encode` never returns. */
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
