import type { TObject } from "typebox"
import { GROUP, type ResourceType, VERSION } from "./meta.ts"
import type { CelRule } from "./schema.ts"

/** A column of `kubectl get`; priority 1 shows it only with `-o wide`. */
export interface PrinterColumn {
  name: string
  type: "string" | "integer" | "number" | "boolean" | "date"
  jsonPath: string
  description?: string
  priority?: number
}

/** Everything that one kind is: its CRD, its TypeScript types and its validators are made from this. */
export interface KindDefinition<Spec extends TObject = TObject, Status extends TObject = TObject> extends ResourceType {
  singular: string
  shortNames: string[]
  description: string
  spec: Spec
  status: Status
  /** Rules on the whole object; they see `self.metadata.name`, `self.spec` and `self.status`. */
  rules?: CelRule[]
  printerColumns: PrinterColumn[]
  /** JSON paths that field selectors may name, at most 8 (Kubernetes' limit). */
  selectableFields?: string[]
}

/** Completes a kind with the group and version that all of Berth's kinds share. */
export function defineKind<Spec extends TObject, Status extends TObject>(
  definition: Omit<KindDefinition<Spec, Status>, "group" | "version">,
): KindDefinition<Spec, Status> {
  return { group: GROUP, version: VERSION, ...definition }
}

/**
 * Rules on `metadata.name` of a kind that the REST API finds by name or id: Kubernetes' own (a DNS subdomain), at
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
      message: "metadata.name must not look like a UUID: it would shadow another object's id",
    },
  ]
}

/** The `Age` column, which every kind ends with. */
export const AGE_COLUMN: PrinterColumn = { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp" }
