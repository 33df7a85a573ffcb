import { createRequire } from "node:module"
import { dirname, join } from "node:path"

/**
 * Azure's own descriptions of its resources, from its SDKs: functions that read and write each resource, field by
 * field. A field that they don't know is not in the API.
 */

type Json = Record<string, unknown>
type Codec = (value: Json) => Json

interface Description {
  read: Codec
  write: Codec
}

const require = createRequire(import.meta.url)

function codecs(sdk: string, file: string): Record<string, Codec> {
  return require(join(dirname(require.resolve(sdk)), file)) as Record<string, Codec>
}

function description(all: Record<string, Codec>, name: string): Description {
  const read = all[`${name}Deserializer`]
  const write = all[`${name}Serializer`]
  if (read === undefined || write === undefined) throw new Error(`the SDK describes no ${name}`)
  return { read, write }
}

const compute = codecs("@azure/arm-compute", "models/compute/models.js")
const network = codecs("@azure/arm-network", "models/common/models.js")

const DESCRIPTIONS = {
  virtualMachine: description(compute, "virtualMachine"),
  networkSecurityGroup: description(network, "networkSecurityGroup"),
  virtualNetwork: description(network, "virtualNetwork"),
  publicIPAddress: description(network, "publicIPAddress"),
}
export type Described = keyof typeof DESCRIPTIONS

/** Returns the parts of a request's body that the API doesn't describe: a round trip loses them. */
export function requestFaults(kind: Described, body: Json): string[] {
  const { read, write } = DESCRIPTIONS[kind]
  return missing(body, JSON.parse(JSON.stringify(write(read(body)))) as Json, "")
}

/** Returns the parts of an SDK's object that the API doesn't describe: a round trip through a request loses them. */
export function objectFaults(kind: Described, resource: object): string[] {
  const { read, write } = DESCRIPTIONS[kind]
  return missing(resource, read(JSON.parse(JSON.stringify(write(resource as Json))) as Json), "")
}

/** Returns the parts of an answer that the API doesn't describe: reading it loses them. */
export function answerFaults(kind: Described, answer: Json): string[] {
  return missing(answer, DESCRIPTIONS[kind].read(answer), "")
}

/** Returns the leaves of `given` that aren't in `known`. The SDKs lift the fields under `properties`. */
function missing(given: unknown, known: unknown, at: string): string[] {
  if (Array.isArray(given)) {
    if (!Array.isArray(known)) return [`${at}: unknown`]
    return given.flatMap((each, index) => missing(each, known[index], `${at}/${index}`))
  }
  if (typeof given !== "object" || given === null) return same(given, known) ? [] : [`${at}: unknown`]
  if (typeof known !== "object" || known === null) return [`${at}: unknown`]
  const read = known as Json
  return Object.entries(given).flatMap(([name, value]) =>
    missing(value, name === "properties" && read["properties"] === undefined ? read : read[name], `${at}/${name}`),
  )
}

function same(given: unknown, known: unknown): boolean {
  return known instanceof Date ? known.getTime() === Date.parse(String(given)) : given === known
}
