import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { load } from "js-yaml"
import type { Job, JobPhase, JobReason } from "../src/core/apis/job.ts"
import { packageFile } from "../src/core/package.ts"

/** Expected end of a sample. */
export interface Expectation {
  phase: JobPhase
  reason?: JobReason
}

export interface Samples {
  /** Manifests for the Kubernetes API. */
  applied: { file: string; manifest: Job }[]
  /** A body for POST /jobs, as the YAML of its file, and its job's name. */
  submitted: { file: string; yaml: string; name: string }
  /** Names of the jobs to cancel once they run. */
  cancelled: string[]
  /** Throws for a job that is not from a sample. */
  expectation(name: string): Expectation
  images(): string[]
}

/** Folder of the repository's samples. */
const SAMPLES_FOLDER = packageFile("manifests", "samples")

const EXPECTATIONS: Readonly<Record<string, Expectation>> = {
  hello: { phase: "succeeded" },
  primes: { phase: "succeeded" },
  retries: { phase: "failed", reason: "ContainerFailed" },
  timeout: { phase: "failed", reason: "DeadlineExceeded" },
  cancelled: { phase: "cancelled" },
  submitted: { phase: "succeeded" },
}

/** Reads the samples. Throws if one has no expectation: the demo could not judge its result. */
export async function readSamples(folder = SAMPLES_FOLDER): Promise<Samples> {
  const files = (await readdir(folder)).filter((file) => file.endsWith(".yaml")).sort()
  const applied = await Promise.all(
    files.map(async (file) => ({ file, manifest: load(await readFile(join(folder, file), "utf8")) as Job })),
  )
  const submittedFile = join("rest", "submit.yaml")
  const yaml = await readFile(join(folder, submittedFile), "utf8")
  const body = load(yaml) as { name: string; image: string }
  const jobs = applied.filter(({ manifest }) => manifest.kind === "Job")
  for (const name of [...jobs.map(({ manifest }) => manifest.metadata.name), body.name]) expectation(name)
  return {
    applied: jobs,
    submitted: { file: submittedFile, yaml, name: body.name },
    cancelled: Object.keys(EXPECTATIONS).filter((name) => EXPECTATIONS[name]?.phase === "cancelled"),
    expectation,
    images: () => [...new Set([...jobs.map(({ manifest }) => manifest.spec.image), body.image])],
  }
}

function expectation(name: string): Expectation {
  const found = EXPECTATIONS[name]
  if (found === undefined)
    throw new Error(`there is no expectation for the sample job "${name}": add one beside the others`)
  return found
}
