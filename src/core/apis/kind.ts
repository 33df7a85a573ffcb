import type { TObject } from "typebox"
import { GROUP, type ResourceType, VERSION } from "./meta.ts"
import type { CelRule } from "./schema.ts"

/** Column of `kubectl get`. Priority 1 shows it only with `-o wide`. */
export interface PrinterColumn {
  name: string
  type: "string" | "integer" | "number" | "boolean" | "date"
  jsonPath: string
  description?: string
  priority?: number
}

/** Definition of a kind. Its CRD, TypeScript types and validators are derived from it. */
export interface KindDefinition<Spec extends TObject = TObject, Status extends TObject = TObject> extends ResourceType {
  singular: string
  shortNames: string[]
  description: string
  spec: Spec
  status: Status
  /**
   * Parts that only Berth writes. Such a spec has one owner, and so has each field of such a status. So managedFields names
   * fewer fields, which makes each write cheaper.
   */
  owned?: readonly ("spec" | "status")[]
  /** Types of the conditions that Berth writes. */
  conditions: readonly string[]
  /** Rules on the whole object; they see `self.metadata.name`, `self.spec` and `self.status`. */
  rules?: CelRule[]
  printerColumns: PrinterColumn[]
  /** JSON paths for field selectors, at most 8 (Kubernetes' limit). */
  selectableFields?: string[]
}

/** Adds the group and version of all Berth kinds to a definition. */
export function defineKind<Spec extends TObject, Status extends TObject>(
  definition: Omit<KindDefinition<Spec, Status>, "group" | "version">,
): KindDefinition<Spec, Status> {
  return { group: GROUP, version: VERSION, ...definition }
}

/**
 * Returns rules on `metadata.name` of a kind that the REST API finds by name or id. A name is a DNS subdomain of at
 * most `longest` characters, and not a UUID.
 */
export function nameRules(longest: number): CelRule[] {
  return [
    {
      rule: `self.metadata.name.size() <= ${longest}`,
      message: `metadata.name must have at most ${longest} characters`,
    },
    {
      rule: "!self.metadata.name.matches('^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')",
      message: "metadata.name must not look like a UUID: the REST API would confuse it with another object's id",
    },
  ]
}

/** `Age` column, the last of every kind. */
export const AGE_COLUMN: PrinterColumn = { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" }
