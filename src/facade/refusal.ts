import { escapePointer } from "../apis/fault.ts"
import type { Fault } from "../apis/validate.ts"
import { messageOf } from "../http/problem.ts"
import type { KubeError } from "../kube/errors.ts"

/**
 * The faults that the API server found in an object, in the body's terms: `spec.volumes[data].bucket` is the body's
 * `/volumes/data/bucket`, `metadata.name` its `/name`. `fieldNames` has REST's names of the spec's own fields, where
 * they are others.
 */
export function faultsOfRefusal(error: KubeError, fieldNames: Readonly<Record<string, string>> = {}): Fault[] {
  const causes = error.details?.causes ?? []
  if (causes.length === 0) return [{ pointer: "", detail: messageOf(error) }]
  return causes.map(({ field, message }) => ({
    pointer: pointerOf(field, fieldNames),
    detail: message ?? messageOf(error),
  }))
}

/** A field path of Kubernetes (`a.b[0]`, `a[key]`) as a JSON pointer into the body. */
function pointerOf(path: string | undefined, fieldNames: Readonly<Record<string, string>>): string {
  const parts = [...(path ?? "").matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)].map((match) => match[1] ?? match[2] ?? "")
  if (parts[0] !== "spec") return parts.join(".") === "metadata.name" ? "/name" : ""
  const [field = "", ...inside] = parts.slice(1)
  return [fieldNames[field] ?? field, ...inside]
    .filter((part) => part !== "")
    .map((part) => `/${escapePointer(part)}`)
    .join("")
}
