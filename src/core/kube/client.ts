import type { KubeConfig } from "@kubernetes/client-node"
import { defined } from "../apis/defined.ts"
import type { FlowKind } from "./flow.ts"
import {
  type ApiObject,
  apiVersionOf,
  collectionPath,
  type ObjectRef,
  objectPath,
  type Resource,
  type Unstored,
} from "./resource.ts"
import {
  type CallOptions,
  type Exchange,
  type KubeRequest,
  Transport,
  type TransportOptions,
  type Wait,
} from "./transport.ts"
import { type WatchEvent, watchEvents } from "./watch.ts"

export type { CallOptions, Exchange, Impersonation } from "./transport.ts"
export type { WatchEvent } from "./watch.ts"

export interface ClientOptions extends TransportOptions {
  /** Field manager of calls that name no other. Default `berth`. */
  fieldManager?: string
}

export interface GetOptions extends CallOptions {
  resourceVersion?: string
  subresource?: string
}

/** Limits of a list or a watch. */
export interface Selection {
  /** Namespace to select; absent: all namespaces. */
  namespace?: string | undefined
  labelSelector?: string | undefined
  fieldSelector?: string | undefined
}

/** Options of a list. Without a resourceVersion a list is consistent: it has every write that was answered before. */
export interface ListOptions extends CallOptions, Selection {
  /** Objects per page. */
  limit?: number
  /** Token from the previous page's metadata. */
  continue?: string
  resourceVersion?: string
  resourceVersionMatch?: "Exact" | "NotOlderThan"
}

export interface ObjectList<T> {
  metadata: { resourceVersion: string; continue?: string; remainingItemCount?: number }
  items: T[]
}

export interface WriteOptions extends CallOptions {
  /** Validates and answers as usual, but stores nothing. */
  dryRun?: boolean
  fieldManager?: string
  /** Handling of unknown fields. Default Strict: reject. */
  fieldValidation?: "Strict" | "Warn" | "Ignore"
  subresource?: string
}

/** `merge`: RFC 7386, null removes. `json`: RFC 6902; a `test` operation makes it conditional. */
export type Patch = { merge: unknown } | { json: JsonPatchOperation[] }

export interface JsonPatchOperation {
  op: "add" | "remove" | "replace" | "test" | "move" | "copy"
  path: string
  value?: unknown
  from?: string
}

export interface ApplyOptions extends WriteOptions {
  /** Takes over fields of another field manager, instead of a Conflict. */
  force?: boolean
}

export interface DeleteOptions extends CallOptions {
  /** Deletes only this incarnation or version; a Conflict otherwise. */
  preconditions?: { uid?: string; resourceVersion?: string }
  propagationPolicy?: "Background" | "Foreground" | "Orphan"
  gracePeriodSeconds?: number
  dryRun?: boolean
}

export interface WatchOptions extends Selection, Omit<CallOptions, "timeoutSeconds"> {
  /** Version to start after. The watch fails with an Expired error if the server no longer has it. */
  resourceVersion?: string
  /** Timeout after which the server ends the watch. The client fails the watch a margin later. Default 300. */
  serverTimeoutSeconds?: number
  /**
   * Timeout without any data, seconds. The API server sends a bookmark about once a minute, so the default of 150 means
   * that two were missed.
   */
  idleTimeoutSeconds?: number
}

/** Delay after the server's timeout until the client fails the watch, seconds. */
const WATCH_MARGIN_SECONDS = 30

/**
 * Typed client of one kube-apiserver. All calls reject with KubeError, or with the reason of their signal. Objects are
 * sent and returned as plain JSON: no field is renamed or dropped.
 */
export class KubeClient {
  readonly #transport: Transport
  readonly #fieldManager: string

  /** `kubeConfig` has the server, TLS and authentication: from a file, the cluster, an exec plugin … */
  constructor(kubeConfig: KubeConfig, options: ClientOptions = {}) {
    this.#transport = new Transport(kubeConfig, options)
    this.#fieldManager = options.fieldManager ?? "berth"
  }

  /** Reads the current state of one object, or an older one if a resourceVersion allows it. */
  async get<T extends ApiObject>(resource: Resource<T>, ref: ObjectRef, options: GetOptions = {}): Promise<T> {
    const { subresource, resourceVersion, ...call } = options
    return (await this.#transport.send({
      ...call,
      method: "GET",
      path: objectPath(resource, ref, subresource),
      query: { resourceVersion },
    })) as T
  }

  /** Reads one page, or all objects if `limit` is absent. */
  async list<T extends ApiObject>(resource: Resource<T>, options: ListOptions = {}): Promise<ObjectList<T>> {
    const { namespace, labelSelector, fieldSelector, limit, continue: token, ...rest } = options
    const { resourceVersion, resourceVersionMatch, ...call } = rest
    const page = (await this.#transport.send({
      ...call,
      method: "GET",
      path: collectionPath(resource, namespace),
      query: { labelSelector, fieldSelector, limit, continue: token, resourceVersion, resourceVersionMatch },
    })) as ObjectList<T>
    // The API server omits apiVersion and kind of built-in kinds in lists.
    for (const item of page.items) Object.assign(item, typeMeta(resource))
    return page
  }

  /**
   * Reads page by page. All pages show the same version; an Expired error if reading takes minutes. The next page is
   * requested while the caller handles one.
   */
  async *pages<T extends ApiObject>(
    resource: Resource<T>,
    options: Omit<ListOptions, "continue"> = {},
  ): AsyncGenerator<ObjectList<T>, void, void> {
    // The token contains the version. A second one is an error.
    const { resourceVersion: _, resourceVersionMatch: __, ...others } = options
    let page: ObjectList<T> | undefined = await this.list(resource, { limit: 500, ...options })
    while (page !== undefined) {
      const token: string | undefined = page.metadata.continue
      const next: Promise<ObjectList<T>> | undefined = token
        ? this.list(resource, { limit: 500, ...others, continue: token })
        : undefined
      // A caller that needs no more pages does not wait for it.
      next?.catch(() => undefined)
      yield page
      page = await next
    }
  }

  /** Creates an object; an AlreadyExists error if the name is taken. Never sent twice. */
  async create<T extends ApiObject>(
    resource: Resource<T>,
    object: Unstored<T>,
    options: WriteOptions = {},
  ): Promise<T> {
    const path = collectionPath(resource, object.metadata.namespace)
    return (await this.#write("POST", path, { ...typeMeta(resource), ...object }, options)) as T
  }

  /** Creates a subresource, e.g. a ServiceAccount's `token` or a Pod's `eviction`. */
  async createSubresource<Answer>(
    resource: Resource,
    ref: ObjectRef,
    body: unknown,
    options: WriteOptions & { subresource: string },
  ): Promise<Answer> {
    const { subresource, ...rest } = options
    return (await this.#write("POST", objectPath(resource, ref, subresource), body, rest)) as Answer
  }

  /** Replaces the whole object; a Conflict if it has a resourceVersion that is not the current one. */
  async replace<T extends ApiObject>(resource: Resource<T>, object: T, options: WriteOptions = {}): Promise<T> {
    const path = objectPath(resource, object.metadata, options.subresource)
    return (await this.#write("PUT", path, { ...typeMeta(resource), ...object }, options)) as T
  }

  /** Replaces the status only. */
  replaceStatus<T extends ApiObject>(resource: Resource<T>, object: T, options: WriteOptions = {}): Promise<T> {
    return this.replace(resource, object, { ...options, subresource: "status" })
  }

  /** Patches an object. A merge patch with `metadata.resourceVersion` is conditional on it. */
  async patch<T extends ApiObject>(
    resource: Resource<T>,
    ref: ObjectRef,
    patch: Patch,
    options: WriteOptions = {},
  ): Promise<T> {
    const path = objectPath(resource, ref, options.subresource)
    const [body, contentType] =
      "merge" in patch ? [patch.merge, "application/merge-patch+json"] : [patch.json, "application/json-patch+json"]
    return (await this.#write("PATCH", path, body, { ...options, contentType })) as T
  }

  /** Patches the status only. */
  patchStatus<T extends ApiObject>(
    resource: Resource<T>,
    ref: ObjectRef,
    patch: Patch,
    options: WriteOptions = {},
  ): Promise<T> {
    return this.patch(resource, ref, patch, { ...options, subresource: "status" })
  }

  /**
   * Creates or changes an object by server-side apply. It removes fields that this manager applied before and no longer
   * gives. A Conflict if another manager owns a field, unless forced.
   */
  async apply<T extends ApiObject>(
    resource: Resource<T>,
    object: PartialObject<T>,
    options: ApplyOptions = {},
  ): Promise<T> {
    const { force, ...write } = options
    const path = objectPath(resource, object.metadata, options.subresource)
    const body = { ...typeMeta(resource), ...object }
    const contentType = "application/apply-patch+yaml"
    return (await this.#write("PATCH", path, body, { ...write, contentType }, { force })) as T
  }

  /** Changes the status only, by server-side apply. */
  applyStatus<T extends ApiObject>(
    resource: Resource<T>,
    object: PartialObject<T>,
    options: ApplyOptions = {},
  ): Promise<T> {
    return this.apply(resource, object, { ...options, subresource: "status" })
  }

  /**
   * Deletes an object. Resolves with undefined if it is deleted, or with the object if finalizers still hold it. A
   * NotFound error if it did not exist.
   */
  async delete<T extends ApiObject>(
    resource: Resource<T>,
    ref: ObjectRef,
    options: DeleteOptions = {},
  ): Promise<T | undefined> {
    const { preconditions, propagationPolicy, gracePeriodSeconds, dryRun, ...call } = options
    const body = {
      apiVersion: "v1",
      kind: "DeleteOptions",
      ...(preconditions && { preconditions }),
      ...(propagationPolicy && { propagationPolicy }),
      ...defined({ gracePeriodSeconds }),
      ...(dryRun && { dryRun: ["All"] }),
    }
    const answer = await this.#transport.send({ ...call, method: "DELETE", path: objectPath(resource, ref), body })
    return (answer as ApiObject).kind === "Status" ? undefined : (answer as T)
  }

  /**
   * Deletes all objects of a namespace that have these labels, in one request. @throws RangeError without labels, which
   * would delete all
   */
  async deleteCollection(
    resource: Resource,
    { namespace, labelSelector }: { namespace: string; labelSelector: string },
    options: CallOptions = {},
  ): Promise<void> {
    if (labelSelector === "") throw new RangeError(`name the labels of the ${resource.plural} to delete`)
    const path = collectionPath(resource, namespace)
    await this.#transport.send({ ...options, method: "DELETE", path, query: { labelSelector } })
  }

  /**
   * Yields changes as they happen, until the server's timeout or the signal. Throws KubeError if the connection breaks
   * or is silent for too long, or if the version is Expired (see isGone).
   */
  watch<T extends ApiObject>(resource: Resource<T>, options: WatchOptions = {}): AsyncGenerator<WatchEvent<T>> {
    const { namespace, labelSelector, fieldSelector, resourceVersion, signal, as } = options
    const serverTimeoutSeconds = options.serverTimeoutSeconds ?? 300
    const request: KubeRequest = {
      method: "GET",
      path: collectionPath(resource, namespace),
      query: {
        watch: true,
        allowWatchBookmarks: true,
        timeoutSeconds: Math.ceil(serverTimeoutSeconds),
        labelSelector,
        fieldSelector,
        resourceVersion,
      },
      timeoutSeconds: serverTimeoutSeconds + WATCH_MARGIN_SECONDS,
      signal,
      as,
    }
    return watchEvents<T>(request.path, this.#transport.stream(request, options.idleTimeoutSeconds ?? 150))
  }

  /** Sends any other request, e.g. `GET /version` or `GET /readyz`. Resolves with the parsed JSON, or the text. */
  async request<Answer>(request: KubeRequest): Promise<Answer> {
    return (await this.#transport.send(request)) as Answer
  }

  /**
   * Calls the listener after each exchange with the API server. The listener must not throw. The returned function
   * removes it.
   */
  onExchange(listener: (exchange: Exchange) => void): () => void {
    return this.#transport.onExchange(listener)
  }

  /** Calls the listener after each wait for a permit to send. The listener must not throw. The returned function removes it. */
  onWait(listener: (wait: Wait) => void): () => void {
    return this.#transport.onWait(listener)
  }

  /** Number of calls of a kind that wait for a permit to send. */
  waiting(kind: FlowKind): number {
    return this.#transport.waiting(kind)
  }

  /** Waits for running requests, then closes the connections. */
  close(): Promise<void> {
    return this.#transport.close()
  }

  #write(
    method: "POST" | "PUT" | "PATCH",
    path: string,
    body: unknown,
    options: WriteOptions & { contentType?: string },
    query: KubeRequest["query"] = {},
  ): Promise<unknown> {
    const { dryRun, fieldManager, fieldValidation, subresource: _, ...call } = options
    return this.#transport.send({
      ...call,
      method,
      path,
      query: {
        ...query,
        fieldManager: fieldManager ?? this.#fieldManager,
        fieldValidation: fieldValidation ?? "Strict",
        dryRun: dryRun ? "All" : undefined,
      },
      body,
    })
  }
}

/** Object for server-side apply: its identity, and the fields that the manager wants to own. */
export type PartialObject<T extends ApiObject> = { metadata: ApiObject["metadata"] } & {
  [K in Exclude<keyof T, "metadata">]?: DeepPartial<T[K]>
}

type DeepPartial<T> = T extends (infer Item)[] ? Item[] : T extends object ? { [K in keyof T]?: DeepPartial<T[K]> } : T

function typeMeta(resource: Resource): { apiVersion: string; kind: string } {
  return { apiVersion: apiVersionOf(resource), kind: resource.kind }
}
