import { readFile } from "node:fs/promises"
import { load } from "js-yaml"
import { type GoModuleFiles, goModuleFiles } from "../go-program.ts"

/** Modules that publish the kinds of other projects that the chart has objects of. */
const SOURCES: readonly GoModuleFiles[] = [
  {
    name: "prometheus-operator-crds",
    module: "github.com/prometheus-operator/prometheus-operator",
    version: "v0.85.0",
    paths: [
      "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
      "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
  },
  {
    name: "cert-manager-crds",
    module: "github.com/cert-manager/cert-manager",
    version: "v1.21.2",
    paths: ["deploy/crds/cert-manager.io_certificates.yaml"],
  },
  {
    name: "gateway-api-crds",
    module: "sigs.k8s.io/gateway-api",
    version: "v1.6.3",
    paths: ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
  },
]

/** Returns the CustomResourceDefinitions of their releases. */
export async function othersKinds(): Promise<object[]> {
  const paths = (await Promise.all(SOURCES.map(goModuleFiles))).flat()
  return await Promise.all(paths.map(async (path) => load(await readFile(path, "utf8")) as object))
}
