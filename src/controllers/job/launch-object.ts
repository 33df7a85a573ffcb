import { cutTo } from "../../apis/conditions.ts"
import type { JobSpec, StoredJob } from "../../apis/job.ts"
import { RunSchema } from "../../apis/job.ts"
import { LAUNCH_FINALIZER, type Launch, launchName } from "../../apis/launch.ts"
import { LIMITS } from "../../apis/limits.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../apis/meta.ts"
import type { JobSettings } from "../../placement/settings.ts"
import type { Payer } from "../../router/rest.ts"
import type { RankedPlacement } from "../../router/route.ts"

/** Where this installation's Launches live and where their agents report. */
export interface InstallationFacts {
  id: string
  systemNamespace: string
  gatewayUrl: string
  /** PEM of the gateway's CA, where it is not a public one. */
  gatewayCa?: string
  /** Berth's own image, which VMs of public clouds run the agent from. */
  agentImage?: string
}

/** What one Launch is made from. */
export interface LaunchInputs {
  number: number
  placement: RankedPlacement<Payer>
  /** Why that one, for people. */
  why: string
  /** How long the container may run in this VM, seconds: what earlier VMs have left of the job's timeout. */
  timeoutSeconds: number
  /** The job's volumes, each with the connection that reaches its bucket; absent: as the job has them. */
  volumes?: JobSpec["volumes"] | undefined
}

/** Beyond its timeout a VM gets this long for each retry and for its end (pulls, flushes), seconds. */
const END_SLACK_SECONDS = 600
const RETRY_SLACK_SECONDS = 30

/** The Launch of a job: everything that its VM's whole life needs, frozen, but for the credentials. Pure. */
export function launchObject(
  job: StoredJob,
  inputs: LaunchInputs,
  installation: InstallationFacts,
  settings: JobSettings,
): Launch {
  const { number, placement, why, timeoutSeconds, volumes } = inputs
  const { namespace = "", name, uid } = job.metadata
  const { connection, account } = placement.payer
  const slack = END_SLACK_SECONDS + RETRY_SLACK_SECONDS * (job.spec.maxRetries ?? 0)
  return {
    apiVersion: API_VERSION,
    kind: "Launch",
    metadata: {
      name: launchName(uid, number),
      namespace: installation.systemNamespace,
      labels: { [LABELS.jobUid]: uid, [LABELS.jobNamespace]: namespace },
      // The Job's status says it next. Whoever writes that after a crash has nothing but the Launch.
      annotations: { [ANNOTATIONS.placementReason]: cutTo(why, LIMITS.message) },
      finalizers: [LAUNCH_FINALIZER],
    },
    spec: {
      job: { namespace, name, uid },
      number,
      installation: installation.id,
      offer: placement.offer,
      ...(connection !== undefined && { connection }),
      ...(account !== undefined && { account }),
      run: { ...runOf(job), timeoutSeconds, ...(volumes !== undefined && { volumes }) },
      gatewayUrl: installation.gatewayUrl,
      ...(installation.gatewayCa !== undefined && { gatewayCa: installation.gatewayCa }),
      ...(installation.agentImage !== undefined && { agentImage: installation.agentImage }),
      bootDeadlineSeconds: settings.bootDeadlineSeconds,
      lifetimeSeconds: settings.bootDeadlineSeconds + timeoutSeconds + slack,
    },
  }
}

/** The container's part of a job's spec. */
function runOf({ spec }: StoredJob): Launch["spec"]["run"] {
  const given = Object.keys(RunSchema.properties).filter((field) => field in spec)
  return Object.fromEntries(given.map((field) => [field, spec[field as keyof typeof spec]])) as Launch["spec"]["run"]
}
