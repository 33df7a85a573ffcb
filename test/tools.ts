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

/** Tiers of tests that need tools, the most frequent one first. Each also needs the tools of those before it. */
export const TIERS = ["api", "slow", "nightly"] as const

/**
 * Programs that suites need and most machines lack. `prepare` installs or builds each once into the cache directory. A
 * second call returns at once. It rejects with an Error that names what the machine lacks. `tier` is the first one with
 * a suite that needs the tool: a build may take minutes.
 */
export const TOOLS = {
  moto: { tier: "api", prepare: motoEnvironment },
  schemathesis: { tier: "slow", prepare: schemathesisPrograms },
  "openapi-python-client": { tier: "nightly", prepare: pythonBuildPrograms },
  "wheels of berth-jobs": { tier: "nightly", prepare: pythonWheels },
  "a Python for notebooks": { tier: "nightly", prepare: notebookPython },
  Airflow: { tier: "nightly", prepare: airflowPrograms },
  standardwebhooks: { tier: "slow", prepare: standardWebhooksPython },
  "openapi-typescript": { tier: "nightly", prepare: openApiTypeScript },
  "the oldest Node.js": { tier: "nightly", prepare: oldestNode },
  helm: { tier: "slow", prepare: helmProgram },
  kubeconform: { tier: "slow", prepare: () => goProgram(KUBECONFORM) },
  "the CRDs of other projects": { tier: "slow", prepare: othersKinds },
  promql: { tier: "slow", prepare: () => goProgram(PROMQL) },
  kstatus: { tier: "slow", prepare: () => goProgram(KSTATUS) },
  "argo-workflows": {
    tier: "nightly",
    prepare: () => Promise.all([goProgram(ARGO_CONDITIONS), workflowTemplateKind()]),
  },
  glua: { tier: "slow", prepare: () => goProgram(LUA) },
  actionlint: { tier: "slow", prepare: () => goProgram(ACTIONLINT) },
  "etcd-tools": { tier: "nightly", prepare: () => goProgram(ETCD_TOOLS) },
  "fake-gcs-server": { tier: "nightly", prepare: () => goProgram(FAKE_GCS) },
  rclone: { tier: "slow", prepare: () => goProgram(RCLONE) },
} satisfies Record<string, { tier: (typeof TIERS)[number]; prepare: () => Promise<unknown> }>

export type ToolName = keyof typeof TOOLS
