import { escapePointer } from "../../apis/fault.ts"
import type { Fault } from "../../apis/validate.ts"
import type { KubeError } from "../../kube/errors.ts"
import { messageOf } from "../problem.ts"

/**
 * The faults that the API server found in a Job, in the submission's terms: `spec.volumes[data].bucket` is the body's
 * `/volumes/data/bucket`, `metadata.name` its `/name`.
 */
export function faultsOfRefusal(error: KubeError): Fault[] {
  const causes = error.details?.causes ?? []
  if (causes.length === 0) return [{ pointer: "", detail: messageOf(error) }]
  return causes.map(({ field, message }) => ({ pointer: pointerOf(field), detail: message ?? messageOf(error) }))
}

/** A field path of Kubernetes (`a.b[0]`, `a[key]`) as a JSON pointer into the submission. */
function pointerOf(path: string | undefined): string {
  const parts = [...(path ?? "").matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)].map((match) => match[1] ?? match[2] ?? "")
  if (parts[0] !== "spec") return parts.join(".") === "metadata.name" ? "/name" : ""
  return parts
    .slice(1)
    .map((part) => `/${escapePointer(part)}`)
    .join("")
}
