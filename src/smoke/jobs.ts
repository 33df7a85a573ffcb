/** Jobs of the smoke test, by what they try. */
export const SMOKE_KINDS = ["cpu", "spot", "gpu", "bucket"] as const
export type SmokeKind = (typeof SMOKE_KINDS)[number]

export interface SmokeChoice {
  cloud: string
  /** Image with `sh`; for GPUs also with glibc, which nvidia-smi needs. */
  image: string
  /** Region or group of regions; absent: any. */
  region?: string
  /** Bucket for the job that writes and reads a file; absent: no such job. */
  bucket?: string
  /** Limit of each job's run, minutes. */
  minutes: number
}

/** Body of POST /jobs, without a name. */
export interface SmokeJob {
  kind: SmokeKind
  body: Record<string, unknown>
}

/** Returns the jobs to run: those of `kinds` that the choice allows. Pure. */
export function smokeJobs(kinds: readonly SmokeKind[], choice: SmokeChoice): SmokeJob[] {
  const { cloud, image, region, bucket, minutes } = choice
  const common = {
    image,
    cloud: [cloud],
    ...(region !== undefined && { region }),
    timeoutSeconds: minutes * 60,
    maxRetries: 0,
    // The jobs delete themselves, but stay long enough to be looked at.
    ttlSecondsAfterFinished: 3600,
    labels: { "berth-smoke": cloud },
  }
  const shell = (script: string, more: object = {}) => ({ ...common, command: ["sh", "-c"], args: [script], ...more })
  const volumes = { smoke: { bucket, mountPath: "/data", prefix: "berth-smoke" } }
  const bodies: Record<SmokeKind, Record<string, unknown> | undefined> = {
    cpu: shell("echo smoke; uname -m", { provisioning: "onDemand" }),
    spot: shell("echo smoke; uname -m", { provisioning: "spot" }),
    gpu: shell("nvidia-smi -L", { resources: { gpu: "1Gi" } }),
    bucket:
      bucket === undefined ? undefined : shell("echo smoke > /data/smoke.txt && cat /data/smoke.txt", { volumes }),
  }
  return kinds.flatMap((kind) => {
    const body = bodies[kind]
    return body === undefined ? [] : [{ kind, body }]
  })
}
