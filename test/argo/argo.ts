import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { load, loadAll } from "js-yaml"
import type { ApiObject } from "../../src/core/kube/resource.ts"
import { answersOf, type GoModuleFiles, type GoProgram, goModuleFiles } from "../go-program.ts"

/** Program that says which conditions of a resource template an object meets. */
export const ARGO_CONDITIONS: GoProgram = { name: "argo-conditions", folder: import.meta.dirname }

const KIND: GoModuleFiles = {
  name: "argo-workflows-crds",
  module: "github.com/argoproj/argo-workflows/v3",
  version: "v3.7.2",
  paths: ["manifests/base/crds/full/argoproj.io_workflowtemplates.yaml"],
}

/** Returns the path of the CustomResourceDefinition of WorkflowTemplates, with its whole schema. */
export async function workflowTemplateKind(): Promise<string> {
  const [path = ""] = await goModuleFiles(KIND)
  return path
}

const SAMPLES = join(import.meta.dirname, "..", "..", "manifests", "samples", "argo")

export interface ResourceTemplate {
  action: string
  setOwnerReference?: boolean
  successCondition: string
  failureCondition: string
  flags?: string[]
  manifest: string
}

export interface WorkflowTemplate extends ApiObject {
  spec: {
    serviceAccountName: string
    arguments: { parameters: { name: string; value: string }[] }
    templates: {
      name: string
      resource?: ResourceTemplate
      outputs?: { parameters: { name: string; valueFrom: { jsonPath: string } }[] }
    }[]
  }
}

/** Returns the sample of a workflow, and the objects that give its pods their rights. */
export async function samples(): Promise<{ template: WorkflowTemplate; rights: ApiObject[] }> {
  const read = (file: string) => readFile(join(SAMPLES, file), "utf8")
  const template = load(await read("workflow-template.yaml")) as WorkflowTemplate
  return { template, rights: loadAll(await read("rbac.yaml")) as ApiObject[] }
}

/** Returns the resource of a template, with the values of a workflow of this name in its texts. */
export function resourceIn({ spec }: WorkflowTemplate, name: string, workflow: string): ResourceTemplate {
  const found = spec.templates.find((one) => one.name === name)?.resource
  if (found === undefined) throw new Error(`the sample has no resource template ${name}`)
  const values = new Map(spec.arguments.parameters.map((one) => [`inputs.parameters.${one.name}`, one.value]))
  values.set("workflow.name", workflow)
  const filled = JSON.stringify(found).replace(/\{\{(.*?)\}\}/g, (_, expression: string) => {
    const value = values.get(expression)
    if (value === undefined) throw new Error(`no workflow has ${expression}`)
    return value
  })
  return JSON.parse(filled) as ResourceTemplate
}

/** Decision of Argo Workflows about an object. */
export interface Verdict {
  succeeded: boolean
  /** Requirements of the failure condition that the object meets. */
  failed: string[]
  error?: string
}

/** Returns the verdict about an object, by the libraries of Argo Workflows. */
export async function verdictOf(object: object, resource: ResourceTemplate): Promise<Verdict> {
  const { successCondition: success, failureCondition: failure } = resource
  const [verdict] = await answersOf<Verdict>(ARGO_CONDITIONS, [{ object, success, failure }])
  if (verdict === undefined) throw new Error("no verdict")
  return verdict
}
