import {
  type DescField,
  type DescMessage,
  type DescMethod,
  fromBinary,
  getOption,
  isFieldSet,
  type Message,
  toJson,
} from "@bufbuild/protobuf"
import { reflect } from "@bufbuild/protobuf/reflect"
import { type Any, AnySchema, anyUnpack } from "@bufbuild/protobuf/wkt"
import { createValidator } from "@bufbuild/protovalidate"
import { Metadata, status } from "@grpc/grpc-js"
import { encode, type Json, messageType, registry } from "../../src/clouds/nebius/api.ts"
import type { FaultKind } from "./faults.ts"

const validator = createValidator({ registry: registry() })

/** Error with which Nebius refuses a call, or with which an operation ends. */
export class Refusal extends Error {
  readonly code: number
  /** A `ServiceError`. Absent: the error comes from a part of the network that has none. */
  readonly detail: Json | undefined

  constructor(code: number, message: string, detail?: Json) {
    super(message)
    this.code = code
    this.detail = detail
  }

  /** The error as the `google.rpc.Status` of an operation. */
  get status(): Json {
    const type = "type.googleapis.com/nebius.common.v1.ServiceError"
    return {
      code: this.code,
      message: this.message,
      ...(this.detail !== undefined && { details: [{ "@type": type, ...this.detail }] }),
    }
  }

  /** The trailers that carry the status (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). */
  get trailers(): Metadata {
    const trailers = new Metadata()
    if (this.detail === undefined) return trailers
    trailers.set("grpc-status-details-bin", Buffer.from(encode(messageType("google.rpc.Status"), this.status)))
    return trailers
  }
}

/** Returns a refusal of the service with a detail of `ServiceError`, such as `quotaFailure`. */
export function refusal(code: keyof typeof status, message: string, kind: string, detail: Json): Refusal {
  const name = `${kind.charAt(0).toUpperCase()}${kind.slice(1)}`
  return new Refusal(status[code], message, { service: "compute", code: name, [kind]: detail })
}

export const notFound = (id: string): Refusal =>
  refusal("NOT_FOUND", `resource not found: ${id}`, "resourceNotFound", { resourceId: id })

export const badRequest = (violations: readonly { field: string; message: string }[]): Refusal =>
  refusal("INVALID_ARGUMENT", violations.map(({ field, message }) => `${field}: ${message}`).join("; "), "badRequest", {
    violations: violations.map((each) => ({ ...each })),
  })

/** Returns the error of a fault. Capacity, quota and rate have one code, and different details. */
export function refusalOf(fault: FaultKind): Refusal {
  switch (fault) {
    case "capacity":
      return refusal("RESOURCE_EXHAUSTED", "Not enough resources", "notEnoughResources", {
        violations: [{ resourceType: "compute", message: "no hosts for the preset", requested: "1" }],
      })
    case "quota":
      return refusal("RESOURCE_EXHAUSTED", "Quota limit exceeded", "quotaFailure", {
        violations: [{ quota: "compute.instance.count", message: "too many VMs", limit: "2", requested: "3" }],
      })
    case "rateLimit":
      return refusal("RESOURCE_EXHAUSTED", "Too many requests", "tooManyRequests", { violation: "10 per second" })
    case "forbidden":
      return refusal("PERMISSION_DENIED", "Permission denied", "permissionDenied", { resourceId: "project" })
    case "invalid":
      return badRequest([{ field: "spec.boot_disk", message: "the stand-in refuses it, as planned" }])
    default:
      return new Refusal(status.UNAVAILABLE, "upstream connect error or disconnect/reset before headers")
  }
}

export interface FieldViolation {
  field: string
  message: string
}

/** Reads a message strictly. Returns it, and what the description does not allow: of rules, fields and behaviour. */
export function readStrictly(
  { input, name }: Pick<DescMethod, "input" | "name">,
  bytes: Uint8Array,
): { json: Json; violations: FieldViolation[] } {
  const message = fromBinary(input, bytes)
  const violations = strictly(input, message, name === "Create")
  const hasUnpublished = violations.some(({ message: text }) => text === UNPUBLISHED)
  return { json: hasUnpublished ? {} : (toJson(input, message, { registry: registry() }) as Json), violations }
}

/** Returns what is wrong with an answer of the stand-in, which must keep to the description too. */
export function answerViolations(type: DescMessage, bytes: Uint8Array): string[] {
  return ruleViolations(type, fromBinary(type, bytes)).map(({ field, message }) => `${field}: ${message}`)
}

const UNPUBLISHED = "the API has no such message"

function strictly(type: DescMessage, message: Message, isCreation: boolean): FieldViolation[] {
  return [...ruleViolations(type, message), ...fieldViolations({ type, message, path: "", isCreation })]
}

function ruleViolations(type: DescMessage, message: Message): FieldViolation[] {
  const result = validator.validate(type, message)
  if (result.kind === "valid") return []
  if (result.kind === "error") throw result.error
  return result.violations.map((each) => ({ field: String(each.toString().split(":")[0]), message: each.message }))
}

interface Visited {
  type: DescMessage
  message: Message
  path: string
  /** True in the request of a `Create`, which sets no id and no output. */
  isCreation: boolean
}

/** Values of `nebius.FieldBehavior` that a creation may not set: `IDENTIFIER`, `OUTPUT_ONLY`, `PUBLIC_OUTPUT_ONLY`. */
const NOT_ON_CREATION = [3, 5, 8]

/** Returns fields that are unknown, deprecated, not to be set, or have a value that their enum does not have. */
function fieldViolations(visited: Visited): FieldViolation[] {
  const { type, message, path } = visited
  const unknown = (message.$unknown ?? []).map(({ no }) => ({
    field: within(path, String(no)),
    message: "unknown field",
  }))
  if (type.typeName === AnySchema.typeName) return [...unknown, ...packedViolations(message as Any, path)]
  return [...unknown, ...type.fields.filter((field) => isFieldSet(message, field)).flatMap(usesOf(visited))]
}

const within = (path: string, name: string): string => (path === "" ? name : `${path}.${name}`)

/** Returns a function that says what is wrong with a field that is set. */
function usesOf({ type, message, path, isCreation }: Visited): (field: DescField) => FieldViolation[] {
  const behavior = registry().getExtension("nebius.field_behavior")
  return (field) => {
    const at = within(path, field.name)
    const behaviors = (behavior && (getOption(field, behavior) as number[])) ?? []
    const wrong = [
      ...(isCreation && behaviors.some((each) => NOT_ON_CREATION.includes(each)) ? ["must not be set on create"] : []),
      ...(field.proto.options?.deprecated === true ? ["is deprecated"] : []),
    ].map((text) => ({ field: at, message: text }))
    const values = valuesOf(field.fieldKind, reflect(type, message).get(field))
    return [...wrong, ...values.flatMap((value) => valueViolations(field, value, { path: at, isCreation }))]
  }
}

function valueViolations(field: DescField, value: unknown, where: Omit<Visited, "type" | "message">): FieldViolation[] {
  if (field.enum !== undefined && field.enum.value[value as number] === undefined)
    return [{ field: where.path, message: `${field.enum.typeName} has no value ${value}` }]
  if (field.message === undefined) return []
  return fieldViolations({ ...where, type: field.message, message: (value as { message: Message }).message })
}

function valuesOf(kind: string, value: unknown): unknown[] {
  if (kind === "list") return [...(value as Iterable<unknown>)]
  return kind === "map" ? [...(value as Map<unknown, unknown>).values()] : [value]
}

/** Returns what is wrong with the message in an `Any`: a price is asked for by the request of a creation. */
function packedViolations(packed: Any, path: string): FieldViolation[] {
  const message = anyUnpack(packed, registry())
  const type = message && registry().getMessage(message.$typeName)
  if (message === undefined || type === undefined) return [{ field: path, message: UNPUBLISHED }]
  return strictly(type, message, /[.]Create[A-Za-z]+Request$/.test(type.typeName)).map((each) => ({
    ...each,
    field: `${path}.${each.field}`,
  }))
}
