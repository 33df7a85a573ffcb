import type { KindDefinition, PrinterColumn } from "./kind.ts"
import { KINDS } from "./kinds.ts"
import { type StructuralSchema, structuralSchema } from "./structural.ts"

/** Category of every kind: `kubectl get berth`. */
const CATEGORY = "berth"

/**
 * Status of an object that no controller has processed. Generations begin with 1, so kstatus reports InProgress.
 * Without a status, Helm, Flux and Argo CD would report the object as ready.
 */
const UNSEEN = { observedGeneration: 0 }

/** CustomResourceDefinition (apiextensions.k8s.io/v1) as plain JSON. The client's classes drop some of its fields. */
export interface CustomResourceDefinition {
  apiVersion: "apiextensions.k8s.io/v1"
  kind: "CustomResourceDefinition"
  metadata: { name: string; labels: Record<string, string> }
  spec: {
    group: string
    scope: "Namespaced" | "Cluster"
    names: {
      kind: string
      listKind: string
      plural: string
      singular: string
      shortNames: string[]
      categories: string[]
    }
    versions: CustomResourceVersion[]
  }
}

interface CustomResourceVersion {
  name: string
  served: boolean
  storage: boolean
  additionalPrinterColumns: PrinterColumn[]
  selectableFields?: { jsonPath: string }[]
  subresources: { status: Record<string, never> }
  schema: { openAPIV3Schema: StructuralSchema }
}

/**
 * Returns the CustomResourceDefinition of a kind.
 * @throws Error if its schemas cannot be written as a structural schema
 */
export function toCrd(kind: KindDefinition): CustomResourceDefinition {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: crdName(kind), labels: { "app.kubernetes.io/part-of": "berth" } },
    spec: {
      group: kind.group,
      scope: kind.namespaced ? "Namespaced" : "Cluster",
      names: {
        kind: kind.kind,
        listKind: `${kind.kind}List`,
        plural: kind.plural,
        singular: kind.singular,
        shortNames: kind.shortNames,
        categories: [CATEGORY],
      },
      versions: [versionOf(kind)],
    },
  }
}

/** Returns the name of a kind's CustomResourceDefinition, which is also the name of its file. */
export function crdName(kind: KindDefinition): string {
  return `${kind.plural}.${kind.group}`
}

/** Returns the CustomResourceDefinitions of all kinds. */
export function crdObjects(): CustomResourceDefinition[] {
  return KINDS.map(toCrd)
}

function versionOf(kind: KindDefinition): CustomResourceVersion {
  return {
    name: kind.version,
    served: true,
    storage: true,
    additionalPrinterColumns: kind.printerColumns,
    ...(kind.selectableFields && { selectableFields: kind.selectableFields.map((jsonPath) => ({ jsonPath })) }),
    subresources: { status: {} },
    schema: { openAPIV3Schema: rootSchema(kind) },
  }
}

function partOf(kind: KindDefinition, part: "spec" | "status"): StructuralSchema {
  const schema = structuralSchema(kind[part], `${kind.kind}.${part}`)
  if (!kind.owned?.includes(part)) return schema
  // Other tools may add conditions to a status, so it is not atomic as a whole.
  return part === "spec" ? { ...schema, "x-kubernetes-map-type": "atomic" } : withAtomicFields(schema)
}

/** Makes the objects and maps in the fields of an object atomic. Lists are atomic, unless they have keys. */
function withAtomicFields({ properties = {}, ...object }: StructuralSchema): StructuralSchema {
  const atomic = (field: StructuralSchema) =>
    field.type === "object" ? { ...field, "x-kubernetes-map-type": "atomic" } : field
  return {
    ...object,
    properties: Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, atomic(field)])),
  }
}

function rootSchema(kind: KindDefinition): StructuralSchema {
  return {
    description: kind.description,
    type: "object",
    required: ["spec"],
    properties: {
      apiVersion: { type: "string", description: "Version of the object's schema." },
      kind: { type: "string", description: "Kind of the object." },
      metadata: { type: "object" },
      spec: partOf(kind, "spec"),
      status: { ...partOf(kind, "status"), default: UNSEEN },
    },
    ...(kind.rules && { "x-kubernetes-validations": kind.rules }),
  }
}
