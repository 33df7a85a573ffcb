import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { KubeConfig } from "@kubernetes/client-node"
import { afterEach, describe, expect, test } from "vitest"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../src/core/kube/core.ts"
import {
  CLIENT_REASONS,
  isAlreadyExists,
  isConflict,
  isForbidden,
  isInvalid,
  isNotFound,
  type KubeError,
} from "../../src/core/kube/errors.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"

const namespace = testNamespace("client")
const client = (): KubeClient => new KubeClient(kubeConfig())
const thrown = (promise: Promise<unknown>): Promise<unknown> => promise.catch((error: unknown) => error)
const named = (name: string, data: Record<string, string> = {}): ConfigMap => ({ metadata: { namespace, name }, data })

describe("the client against a real API server", () => {
  test("creates, reads, replaces, patches and deletes objects", async () => {
    const ref = { namespace, name: "life" }
    const created = await client().create(CONFIG_MAPS, named("life", { a: "1" }))
    expect(isAlreadyExists(await thrown(client().create(CONFIG_MAPS, named("life"))))).toBe(true)
    const replaced = await client().replace(CONFIG_MAPS, { ...created, data: { a: "2" } })
    expect(isConflict(await thrown(client().replace(CONFIG_MAPS, { ...created, data: { a: "3" } })))).toBe(true)
    await client().patch(CONFIG_MAPS, ref, { merge: { data: { a: null, b: "ü" } } })
    await client().patch(CONFIG_MAPS, ref, { json: [{ op: "add", path: "/data/c", value: "4" }] })
    expect((await client().get(CONFIG_MAPS, ref)).data).toEqual({ b: "ü", c: "4" })
    const wrongIncarnation = { preconditions: { uid: "00000000-0000-0000-0000-000000000000" } }
    expect(isConflict(await thrown(client().delete(CONFIG_MAPS, ref, wrongIncarnation)))).toBe(true)
    expect(
      await client().delete(CONFIG_MAPS, ref, { preconditions: { uid: replaced.metadata.uid ?? "" } }),
    ).toBeUndefined()
    expect(isNotFound(await thrown(client().get(CONFIG_MAPS, ref)))).toBe(true)
  })

  test("deletes the objects with a label, and never all", async () => {
    const labelled = (name: string, mark: string) => ({ metadata: { namespace, name, labels: { mark } } })
    for (const [name, mark] of [
      ["one", "x"],
      ["two", "x"],
      ["three", "y"],
    ] as const) {
      await client().create(CONFIG_MAPS, labelled(name, mark))
    }
    await client().deleteCollection(CONFIG_MAPS, { namespace, labelSelector: "mark=x" })
    const { items } = await client().list(CONFIG_MAPS, { namespace, labelSelector: "mark" })
    expect(items.map(({ metadata }) => metadata.name)).toEqual(["three"])
    await expect(client().deleteCollection(CONFIG_MAPS, { namespace, labelSelector: "" })).rejects.toThrow(RangeError)
  })

  test.each(["", ".", "..", "a/b", "../../default/configmaps/other"])(
    "rejects the name %j with a permanent error",
    async (name) => {
      const sent: unknown[] = []
      const own = client()
      own.onExchange((exchange) => sent.push(exchange))
      const refusals = [
        await thrown(own.get(CONFIG_MAPS, { namespace, name })),
        await thrown(own.list(CONFIG_MAPS, { namespace: name })),
        await thrown(own.patch(CONFIG_MAPS, { namespace, name }, { merge: {} })),
        await thrown(own.delete(CONFIG_MAPS, { namespace, name })),
      ]
      for (const refusal of refusals) {
        expect(isInvalid(refusal)).toBe(true)
        expect((refusal as KubeError).message).toMatch(/ConfigMap: name(space)? ".*" can't be in a path/)
      }
      expect(sent).toEqual([])
      await own.close()
    },
  )

  test("returns the object that a finalizer still holds after a delete", async () => {
    const held = named("held")
    held.metadata.finalizers = ["example.com/hold"]
    await client().create(CONFIG_MAPS, held)
    const deleting = await client().delete(CONFIG_MAPS, { namespace, name: "held" })
    expect(deleting?.metadata.deletionTimestamp).toBeDefined()
    await client().patch(CONFIG_MAPS, { namespace, name: "held" }, { merge: { metadata: { finalizers: null } } })
  })

  test("applies fields as their owner, and takes another owner's fields only when forced", async () => {
    await client().apply(CONFIG_MAPS, named("applied", { a: "1", b: "1" }), { fieldManager: "one" })
    const theirs = named("applied", { a: "2" })
    expect(isConflict(await thrown(client().apply(CONFIG_MAPS, theirs, { fieldManager: "two" })))).toBe(true)
    await client().apply(CONFIG_MAPS, theirs, { fieldManager: "two", force: true })
    const applied = await client().apply(CONFIG_MAPS, named("applied"), { fieldManager: "one" })
    expect(applied.data).toEqual({ a: "2" })
  })

  test("rejects unknown fields, and stores nothing in a dry run", async () => {
    const typo = { ...named("typo"), dataa: {} }
    expect(isInvalid(await thrown(client().create(CONFIG_MAPS, typo)))).toBe(true)
    await client().create(CONFIG_MAPS, named("dry"), { dryRun: true })
    expect(isNotFound(await thrown(client().get(CONFIG_MAPS, { namespace, name: "dry" })))).toBe(true)
  })

  test("impersonates another user for one call", async () => {
    const as = { user: "joe", groups: ["accounting", "sales"] }
    const error = await thrown(client().get(CONFIG_MAPS, { namespace, name: "x" }, { as }))
    expect(isForbidden(error)).toBe(true)
    expect(String(error)).toContain('User "joe"')
    const review = await client().request<{ status: { userInfo: { username: string; groups: string[] } } }>({
      method: "POST",
      path: "/apis/authentication.k8s.io/v1/selfsubjectreviews",
      body: { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" },
      as,
    })
    expect(review.status.userInfo.username).toBe("joe")
    expect(review.status.userInfo.groups).toEqual(expect.arrayContaining(as.groups))
  })

  test("lists a consistent state page by page, with type and version in each item", async () => {
    await Promise.all(
      Array.from({ length: 23 }, (_, n) =>
        client().create(CONFIG_MAPS, {
          ...named(`page-${n}`),
          metadata: { namespace, name: `page-${n}`, labels: { paged: "yes" } },
        }),
      ),
    )
    const seen: string[] = []
    const sizes: number[] = []
    for await (const page of client().pages(CONFIG_MAPS, { namespace, labelSelector: "paged=yes", limit: 10 })) {
      sizes.push(page.items.length)
      seen.push(...page.items.map(({ metadata, kind, apiVersion }) => `${apiVersion} ${kind} ${metadata.name}`))
    }
    expect(sizes).toEqual([10, 10, 3])
    expect(new Set(seen)).toEqual(new Set(Array.from({ length: 23 }, (_, n) => `v1 ConfigMap page-${n}`)))
  })

  test("watches from a version, with huge objects, until its signal aborts", async () => {
    const { metadata } = await client().list(CONFIG_MAPS, { namespace, limit: 1 })
    const ended = new AbortController()
    const huge = "x".repeat(900_000)
    const names: string[] = []
    const watch = async () => {
      // The namespace's own ConfigMaps may arrive at any time.
      const fieldSelector = "metadata.name=huge"
      const options = { namespace, fieldSelector, resourceVersion: metadata.resourceVersion, signal: ended.signal }
      for await (const { type, object } of client().watch(CONFIG_MAPS, options)) {
        names.push(`${type} ${object.metadata.name} ${object.data?.["huge"]?.length}`)
        if (type === "DELETED") ended.abort(new Error("seen enough"))
      }
    }
    // Awaited from the start, because the watch may end before the answer to the deletion.
    const watched = expect(watch()).rejects.toThrow("seen enough")
    await client().create(CONFIG_MAPS, named("huge", { huge }))
    await client().delete(CONFIG_MAPS, { namespace, name: "huge" })
    await watched
    expect(names).toEqual(["ADDED huge 900000", "DELETED huge 900000"])
  })

  test("names the missing part of an invalid reference", async () => {
    expect(String(await thrown(client().get(CONFIG_MAPS, { name: "x" })))).toContain('ConfigMap "x" is namespaced')
  })
})

describe("the client against a faulty server", () => {
  let server: Server
  let requests = 0
  afterEach(() => {
    server.closeAllConnections()
    server.close()
  })

  async function clientOf(
    handler: (n: number) => { code: number; retryAfter?: number; body?: string } | "reset" | "silence",
  ): Promise<KubeClient> {
    requests = 0
    server = createServer((incoming, outgoing) => {
      incoming.resume()
      const answer = handler(++requests)
      if (answer === "silence") return
      if (answer === "reset") {
        incoming.socket.resetAndDestroy()
        return
      }
      if (answer.retryAfter !== undefined) outgoing.setHeader("retry-after", answer.retryAfter)
      outgoing.writeHead(answer.code, { "content-type": "application/json" }).end(answer.body ?? "{}")
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    const { port } = server.address() as AddressInfo
    const config = new KubeConfig()
    config.loadFromClusterAndUser(
      { name: "bad", server: `http://127.0.0.1:${port}`, skipTLSVerify: true },
      { name: "me", token: "s3cr3t" },
    )
    return new KubeClient(config)
  }

  test("retries a read after resets, 503 and 429", async () => {
    const answers = [
      "reset",
      { code: 503 },
      { code: 429, retryAfter: 0 },
      { code: 200, body: '{"metadata":{"name":"x"}}' },
    ] as const
    const shaky = await clientOf((n) => answers[n - 1] ?? { code: 500 })
    expect((await shaky.get(CONFIG_MAPS, { namespace: "n", name: "x" })).metadata.name).toBe("x")
    expect(requests).toBe(4)
  })

  test("doesn't resend a create whose response was lost, and reports the unknown outcome", async () => {
    const shaky = await clientOf(() => "reset")
    const error = await thrown(shaky.create(CONFIG_MAPS, named("x")))
    expect(error).toMatchObject({ reason: CLIENT_REASONS.network, outcomeUnknown: true })
    expect(requests).toBe(1)
  })

  test("reports for a refused connection that nothing was written", async () => {
    const shaky = await clientOf(() => "reset")
    await new Promise((resolve) => server.close(resolve))
    expect(await thrown(shaky.create(CONFIG_MAPS, named("x")))).toMatchObject({
      reason: CLIENT_REASONS.network,
      outcomeUnknown: false,
    })
  })

  test("ends a request at the timeout, and at the caller's signal with its reason", async () => {
    const silent = await clientOf(() => "silence")
    const late = await thrown(silent.create(CONFIG_MAPS, named("x"), { timeoutSeconds: 0.2 }))
    expect(late).toMatchObject({ reason: CLIENT_REASONS.timeout, outcomeUnknown: true })
    const signal = AbortSignal.abort(new Error("never mind"))
    expect(await thrown(silent.get(CONFIG_MAPS, { namespace: "n", name: "x" }, { signal }))).toMatchObject({
      message: "never mind",
    })
  })

  test("throws an error without content for a truncated response", async () => {
    const cutting = await clientOf(() => ({ code: 200, body: '{"data":{"password":"hunter2' }))
    const error = (await thrown(cutting.create(CONFIG_MAPS, named("x")))) as KubeError
    expect(error).toMatchObject({ reason: CLIENT_REASONS.invalidResponse, outcomeUnknown: true })
    expect(`${error.stack} ${JSON.stringify(error)}`).not.toMatch(/hunter2|s3cr3t/)
  })
})
