import { join } from "node:path"
import { pythonBuildPrograms } from "../scripts/python-package.ts"
import { ARGO_CONDITIONS, workflowTemplateKind } from "./argo/argo.ts"
import { helmProgram } from "./chart/helm.ts"
import { KUBECONFORM } from "./chart/kubeconform.ts"
import { othersKinds } from "./chart/others-kinds.ts"
import { oldestNode } from "./cli/oldest-node.ts"
import { openApiTypeScript } from "./clients/openapi-typescript.ts"
import { FAKE_GCS } from "./fake-gcs.ts"
import { type GoProgram, goProgram } from "./go-program.ts"
import { KSTATUS } from "./kstatus/kstatus.ts"
import { motoEnvironment } from "./moto.ts"
import { ETCD_TOOLS } from "./operate/etcd-tools.ts"
import { airflowPrograms } from "./python/airflow.ts"
import { notebookPython, pythonWheels } from "./python/package.ts"
import { pythonEnvironment } from "./python-environment.ts"
import { RCLONE } from "./rclone.ts"
import { PROMQL } from "./telemetry/promql.ts"

/** The Lua interpreter with which Argo CD runs health scripts. */
export const LUA: GoProgram = { name: "glua", package: "github.com/yuin/gopher-lua/cmd/glua", version: "v1.1.1" }

/** Program that checks GitHub's workflows: https://github.com/rhysd/actionlint */
export const ACTIONLINT: GoProgram = {
  name: "actionlint",
  package: "github.com/rhysd/actionlint/cmd/actionlint",
  version: "v1.7.12",
}

/** Folder with the programs of https://schemathesis.io, installed once into the cache directory. */
export function schemathesisPrograms(): Promise<string> {
  return pythonEnvironment("schemathesis", join(import.meta.dirname, "schemathesis", "requirements.txt"))
}

/** Folder with a Python that has the SDK of https://www.standardwebhooks.com */
export function standardWebhooksPython(): Promise<string> {
  return pythonEnvironment("standardwebhooks", join(import.meta.dirname, "webhooks", "requirements.txt"))
}

/**
 * Programs that suites need and most machines lack. `prepare` installs or builds each once into the cache directory. A
 * second call returns at once. It rejects with an Error that names what the machine lacks.
 */
export const TOOLS = {
  moto: { prepare: motoEnvironment },
  schemathesis: { prepare: schemathesisPrograms },
  "openapi-python-client": { prepare: pythonBuildPrograms },
  "wheels of berth-jobs": { prepare: pythonWheels },
  "a Python for notebooks": { prepare: notebookPython },
  Airflow: { prepare: airflowPrograms },
  standardwebhooks: { prepare: standardWebhooksPython },
  "openapi-typescript": { prepare: openApiTypeScript },
  "the oldest Node.js": { prepare: oldestNode },
  helm: { prepare: helmProgram },
  kubeconform: { prepare: () => goProgram(KUBECONFORM) },
  "the CRDs of other projects": { prepare: othersKinds },
  promql: { prepare: () => goProgram(PROMQL) },
  kstatus: { prepare: () => goProgram(KSTATUS) },
  "argo-workflows": { prepare: () => Promise.all([goProgram(ARGO_CONDITIONS), workflowTemplateKind()]) },
  glua: { prepare: () => goProgram(LUA) },
  actionlint: { prepare: () => goProgram(ACTIONLINT) },
  "etcd-tools": { prepare: () => goProgram(ETCD_TOOLS) },
  "fake-gcs-server": { prepare: () => goProgram(FAKE_GCS) },
  rclone: { prepare: () => goProgram(RCLONE) },
} satisfies Record<string, { prepare: () => Promise<unknown> }>

export type ToolName = keyof typeof TOOLS
