import type { Fault } from "../../apis/validate.ts"
import { CATALOGUE_CONFIG_MAP, type LiveCatalogue } from "../../catalogue/live.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Logger } from "../../kube/logger.ts"
import { Reflector } from "../../kube/reflector.ts"
import { type ApiObject, resourceOf } from "../../kube/resource.ts"

/** core/v1 ConfigMap. */
export interface ConfigMap extends ApiObject {
  data?: Record<string, string>
}

const CONFIG_MAPS = resourceOf<ConfigMap>({
  group: "",
  version: "v1",
  kind: "ConfigMap",
  plural: "configmaps",
  namespaced: true,
})

export interface CatalogueWatchOptions {
  client: KubeClient
  systemNamespace: string
  catalogue: LiveCatalogue
  /** Who tells faults by an event; absent where another program does. */
  recorder?: Pick<EventRecorder, "record">
  logger: Logger
}

/**
 * Keeps the catalogue as the ConfigMap of the system namespace says, while the returned reflector runs. Faults in it
 * are logged, and told in an event of the ConfigMap.
 */
export function watchCatalogue({ client, systemNamespace, ...options }: CatalogueWatchOptions): Reflector<ConfigMap> {
  const { catalogue, logger } = options
  const reflector = new Reflector<ConfigMap>({
    client,
    resource: CONFIG_MAPS,
    namespace: systemNamespace,
    fieldSelector: `metadata.name=${CATALOGUE_CONFIG_MAP}`,
    logger,
  })
  reflector.onChange(({ current }) => {
    catalogue
      .change(current?.data)
      .then((faults) => tell(current, faults, options))
      .catch((err: unknown) =>
        logger.error({ err }, "the catalogue stays as it was: its ConfigMap could not be applied"),
      )
  })
  return reflector
}

function tell(
  configMap: ConfigMap | undefined,
  faults: readonly Fault[],
  { catalogue, recorder, logger }: Pick<CatalogueWatchOptions, "catalogue" | "recorder" | "logger">,
): void {
  logger.info({ offers: catalogue.current().size, faults: faults.length }, "the catalogue has changed")
  for (const { pointer, detail } of faults) logger.warn({ pointer }, `ConfigMap ${CATALOGUE_CONFIG_MAP}: ${detail}`)
  if (configMap === undefined || faults.length === 0) return
  const message = `these rules are left out or without effect: ${faults.map(({ detail }) => detail).join("; ")}`
  // A list's items come without their kind.
  recorder?.record(
    { ...configMap, apiVersion: "v1", kind: "ConfigMap" },
    { type: "Warning", reason: "InvalidRule", message },
  )
}
