import { expect, test } from "vitest"
import type { Offer } from "../../src/core/apis/offer.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { EventRecorder } from "../../src/core/kube/events.ts"
import { LiveCatalogue } from "../../src/market/catalogue/live.ts"
import { watchCatalogue } from "../../src/market/catalogue/watch.ts"
import { createTable } from "../../src/market/router/table.ts"
import { kubeConfig, kubectl, testNamespace } from "../control-plane.ts"
import { offerOf } from "../harness/builders.ts"
import { eventually } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const namespace = testNamespace("catalogue")

test("the catalogue applies the ConfigMap's rules while it exists, and reports its faults in an event", async () => {
  const client = new KubeClient(kubeConfig())
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: "test", logger: silentLogger })
  const offers: Offer[] = [offerOf(), offerOf({ instanceType: "medium", hourlyPriceUsd: 1.2 })]
  const catalogue = new LiveCatalogue(createTable(offers))
  const stop = new AbortController()
  const reflector = watchCatalogue({ client, systemNamespace: namespace, catalogue, recorder, logger: silentLogger })
  const running = reflector.run(stop.signal)
  const prices = () => [...catalogue.current().offers()].map(({ hourlyPriceUsd }) => hourlyPriceUsd)
  try {
    expect(prices()).toEqual([0.6, 1.2])
    const data = { discounts: "- {factor: 0.5}", exclusions: "- {instanceType: medium}\n- {shape: round}" }
    const configMap = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "berth-catalogue", namespace }, data }
    await kubectl(["apply", "-f", "-"], JSON.stringify(configMap))
    await eventually(() => expect(prices()).toEqual([0.3]))
    await eventually(async () => {
      const events = await kubectl(["get", "events", "-n", namespace, "-o", "jsonpath={.items[*].message}"])
      expect(events).toContain("exclusions[1]: shape is an unknown field")
    })
    await kubectl(["delete", "configmap", "berth-catalogue", "-n", namespace])
    await eventually(() => expect(prices()).toEqual([0.6, 1.2]))
  } finally {
    stop.abort()
    await running
    await recorder.flush()
    await client.close()
  }
})
