import {
  createFileRegistry,
  type DescMessage,
  type DescMethod,
  type FileRegistry,
  fromBinary,
  fromJson,
  getOption,
  type JsonObject,
  toBinary,
  toJson,
} from "@bufbuild/protobuf"
import { EmptySchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt"
import API from "./api.json" with { type: "json" }

let parsed: FileRegistry | undefined

/**
 * Returns Nebius' published API (https://github.com/nebius/api): its services, and the messages in `Any`. Parses it for the
 * first account, because an installation without Nebius must not pay for that.
 */
export function registry(): FileRegistry {
  parsed ??= createFileRegistry(fromBinary(FileDescriptorSetSchema, Buffer.from(API.fileDescriptorSet, "base64")))
  return parsed
}

/** Message in the JSON form of Protocol Buffers: names in camel case, enums by name, 64-bit numbers as text. */
export type Json = JsonObject

/** Returns a method of a service, such as `compute.v1.InstanceService/Create`. */
export function methodOf(name: string): DescMethod {
  const [service = "", method] = name.split("/")
  const found = registry()
    .getService(`nebius.${service}`)
    ?.methods.find((each) => each.name === method)
  if (found === undefined) throw new RangeError(`Nebius' API has no method ${name}`)
  return found
}

/** Returns the host of a method's service (https://github.com/nebius/api#api-endpoints). No user can choose it. */
export function hostOf({ parent }: DescMethod): string {
  const option = registry().getExtension("nebius.api_service_name")
  // Operations are where the service is that began them: Berth follows only those of VMs.
  const name = (option && (getOption(parent, option) as string)) || "compute"
  return `${name}.api.nebius.cloud`
}

/** Returns a message in its binary form. @throws Error for a field or value that the message does not have */
export function encode(type: DescMessage, json: Json): Uint8Array {
  return toBinary(type, fromJson(type, json, { registry: registry() }))
}

/** Reads a message. Fields and messages that this version of the API does not have are left out. */
export function decode(type: DescMessage, bytes: Uint8Array): Json {
  const known = registry()
  // A message in `Any` that the API does not publish is an empty one of that name: the library compares names.
  const getMessage = (typeName: string) => known.getMessage(typeName) ?? { ...EmptySchema, typeName }
  const lenient: typeof known = { ...known, getMessage }
  return toJson(type, fromBinary(type, bytes), { registry: lenient }) as Json
}

/** Returns the description of a message, such as `common.v1.ServiceError`. */
export function messageType(name: string): DescMessage {
  const found = registry().getMessage(name.startsWith("google.") ? name : `nebius.${name}`)
  if (found === undefined) throw new RangeError(`Nebius' API has no message ${name}`)
  return found
}
