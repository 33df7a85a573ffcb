import type { Clock } from "../../../core/apis/clock.ts"
import { secondsBetween } from "../../../core/apis/clock.ts"
import type { Workdir } from "../../../core/apis/job.ts"
import type { ProjectLimits } from "../../../core/quota/project-limits.ts"
import { invalidRequest, Problem, projectLimit, unavailable } from "../../http/problem.ts"
import {
  type StoredUpload,
  type UploadContent,
  UploadMismatchError,
  type UploadRef,
  type UploadStore,
} from "../../uploads/store.ts"

const MIB = 1024 * 1024

/** Smallest number of bytes that an upload counts, so that no project stores millions of tiny ones. */
const LEAST_COUNTED = MIB

/** Age from which a use is noted in the store. It is far below the time that an unused upload is kept. */
const NOTED_AFTER_SECONDS = 600

export interface UploadsOptions {
  store: UploadStore
  limits: Pick<ProjectLimits, "uploadMib" | "uploadsMib">
  clock: Clock
}

/** Uploads of all projects. A request sees those of its own project only. */
export class Uploads {
  readonly #options: UploadsOptions
  /** Bytes that arrive now, by namespace. */
  readonly #arriving = new Map<string, number>()

  constructor(options: UploadsOptions) {
    this.#options = options
  }

  /** Returns the upload, and notes its use, so that a job may soon refer to it. @throws Problem 503 */
  async find(ref: UploadRef): Promise<StoredUpload | undefined> {
    const { store, clock } = this.#options
    return await whileStoreWorks(async () => {
      const found = await store.find(ref)
      if (found === undefined || secondsBetween(found.usedAt, clock.now()) < NOTED_AFTER_SECONDS) return found
      // It may have been removed in between.
      return (await store.touch(ref)) ? { ...found, usedAt: clock.now() } : undefined
    })
  }

  /**
   * Stores an upload.
   * @throws Problem 413 if it is too large, 429 if the project's uploads are, 400 if it has another hash or breaks off, 503
   */
  async put(ref: UploadRef, content: UploadContent): Promise<{ upload: StoredUpload; isNew: boolean }> {
    const { store, clock, limits } = this.#options
    if (content.bytes > limits.uploadMib * MIB) throw tooLarge(content.bytes, limits)
    const before = await whileStoreWorks(() => store.find(ref))
    const counted = before === undefined ? countedBytes(content.bytes) : 0
    await this.#requireRoom(ref.namespace, counted)
    this.#count(ref.namespace, counted)
    try {
      await whileStoreWorks(() => store.write(ref, content))
    } finally {
      this.#count(ref.namespace, -counted)
    }
    return { upload: { ...ref, bytes: content.bytes, usedAt: clock.now() }, isNew: before === undefined }
  }

  /** Checks that the project has the upload of a working directory. @param pointer to it @throws Problem 400, 503 */
  async require(namespace: string, workdir: Workdir | undefined, pointer: string): Promise<void> {
    if (workdir === undefined || (await this.find({ namespace, sha256: workdir.sha256 })) !== undefined) return
    const field = `${pointer.slice(1).replaceAll("/", ".")}.sha256`
    const detail = `${field}: the project has no upload ${workdir.sha256}; upload it first: PUT /1/uploads/${workdir.sha256}`
    throw invalidRequest([{ pointer: `${pointer}/sha256`, detail }])
  }

  /** @throws Problem 429 */
  async #requireRoom(namespace: string, bytes: number): Promise<void> {
    const { store, limits } = this.#options
    let stored = this.#arriving.get(namespace) ?? 0
    await whileStoreWorks(async () => {
      for await (const upload of store.list(namespace)) stored += countedBytes(upload.bytes)
    })
    if (stored + bytes <= limits.uploadsMib * MIB) return
    throw projectLimit(
      429,
      `The project stores ${mib(stored)} of uploads, and this one has ${mib(bytes)}; the limit is ${limits.uploadsMib} MiB. ` +
        "Delete jobs and cronjobs that you no longer need: an upload without any is deleted after an hour.",
    )
  }

  #count(namespace: string, bytes: number): void {
    const arriving = (this.#arriving.get(namespace) ?? 0) + bytes
    if (arriving > 0) this.#arriving.set(namespace, arriving)
    else this.#arriving.delete(namespace)
  }
}

function countedBytes(bytes: number): number {
  return Math.max(bytes, LEAST_COUNTED)
}

function mib(bytes: number): string {
  return `${(bytes / MIB).toFixed(1)} MiB`
}

function tooLarge(bytes: number, { uploadMib }: UploadsOptions["limits"]): Problem {
  const detail = `The upload has ${mib(bytes)}; the limit is ${uploadMib} MiB. Leave files out, or use a volume for data.`
  return new Problem({ type: "too-large", status: 413, detail })
}

/** @throws Problem 400 for a wrong hash, 503 if the store fails */
async function whileStoreWorks<Result>(act: () => Promise<Result>): Promise<Result> {
  try {
    return await act()
  } catch (error) {
    if (error instanceof Problem) throw error
    if (error instanceof UploadMismatchError)
      throw invalidRequest([{ pointer: "", detail: error.message }], "The upload")
    throw unavailable("The store of uploads is unavailable, or full: try again.", 10, error)
  }
}
