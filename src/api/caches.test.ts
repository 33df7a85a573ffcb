import { expect, it } from "vitest"
import type { StoredJob } from "../core/apis/job.ts"
import { ANNOTATIONS } from "../core/apis/meta.ts"
import type { ServerMeta } from "../core/kube/resource.ts"
import { IndexedStore } from "../core/kube/store.ts"
import { toRecord } from "../core/records/job.ts"
import { CACHE_OPTIONS, IDEMPOTENCY_KEY_INDEX, inNamespace } from "./caches.ts"

const job = (): StoredJob => {
  const metadata = {
    namespace: "ns",
    name: "train",
    uid: "5ea07726-efd2-42ec-a095-6d7674666e31",
    resourceVersion: "7",
    generation: 1,
    creationTimestamp: "2026-01-30T03:30:00Z",
    annotations: { [ANNOTATIONS.idempotencyKey]: "key" },
    managedFields: [{ manager: "berth", time: "2026-01-30T03:31:00Z" }],
  } satisfies ServerMeta
  const status = { phase: "succeeded", message: "Ende, für immer", completionTime: "2026-01-30T03:31:00Z" } as const
  return { apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata, spec: { image: "busybox" }, status }
}

it("the cache keeps an ended job packed, with the record, update time and version of the original", () => {
  const { indexes, transform = (same: StoredJob) => same, ...options } = CACHE_OPTIONS.jobs
  expect(options.packing?.isPacked(job())).toBe(true)
  const store = new IndexedStore(indexes, options)
  const kept = transform(job())
  delete (kept.metadata as ServerMeta).managedFields
  store.put(kept)
  const owner = { organizationId: "acme", projectId: "reports" }
  const [read] = store.byIndex(IDEMPOTENCY_KEY_INDEX, inNamespace("ns", "key"))
  expect(read).toEqual(kept)
  expect(read).not.toBe(kept)
  expect(read && toRecord(read, owner)).toEqual(toRecord(job(), owner))
  expect(read && toRecord(read, owner).updated_at).toBe("2026-01-30T03:31:00Z")
})
