import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { abandonedStatus, decide } from "../../src/operator/launch/decide.ts"
import { type Takeover, takeoverOf } from "../../src/operator/launch/takeover.ts"
import type { WarmOptions } from "./warm.ts"

/** Mistake in a rule of takeovers, which the model must notice. */
export interface Mistake {
  what: string
  rules: NonNullable<WarmOptions["rules"]>
  /** Words of the model. */
  fault: RegExp
  /** The search that finds it. */
  options: Pick<WarmOptions, "from" | "jobs" | "faults">
}

/** Returns a takeover whose own status is changed. */
function withOwnVm(change: (vm: NonNullable<StoredLaunch["status"]>["vm"]) => object | undefined): typeof takeoverOf {
  return (...facts): Takeover => {
    const step = takeoverOf(...facts)
    if (step.is !== "done") return step
    return { ...step, own: { ...step.own, vm: { state: "booting", ...change(step.own.vm) } } }
  }
}

/** Returns the Launch without a fact of its agent. */
function without(launch: StoredLaunch | undefined, fact: "leaveTime" | "idleTime"): StoredLaunch | undefined {
  const { agent } = launch?.status ?? {}
  if (launch === undefined || agent === undefined) return launch
  const { [fact]: _, ...rest } = agent
  return { ...launch, status: { ...launch.status, agent: rest } }
}

export const MISTAKES: readonly Mistake[] = [
  {
    what: "a predecessor is written in any version",
    rules: { bindsInVersion: false },
    fault: /two bills do not meet/,
    options: { from: "idleVm", jobs: 2, faults: 0 },
  },
  {
    what: "an ended Launch has no VM, although a takeover may be under way",
    rules: {
      decide: (launch, observed, ...rest) => {
        const inFlight = launch.spec.takesOver === undefined && observed.inFlight
        return decide(launch, { ...observed, inFlight }, ...rest)
      },
    },
    fault: /no Launch holds it|its Launches pay 0 USD/,
    options: { from: "handover", jobs: 1, faults: 2 },
  },
  {
    what: "a record is released before its cost is counted",
    rules: { decide: (launch, observed, ...rest) => decide(launch, { ...observed, isCounted: true }, ...rest) },
    fault: /no Launch pays for it/,
    options: { from: "idleVm", jobs: 1, faults: 1 },
  },
  {
    what: "a predecessor is released before its successor has recorded the VM",
    rules: { decide: (launch, observed, ...rest) => decide(launch, { ...observed, isHandoverOpen: false }, ...rest) },
    fault: /no Launch holds it/,
    options: { from: "handover", jobs: 1, faults: 2 },
  },
  {
    what: "the end of an idle VM is not written before the cloud is asked for it",
    rules: {
      decide: (...facts) => {
        const { status, ...decision } = decide(...facts)
        const isEnd = status?.phase === "terminating" && status.loss === undefined
        return isEnd ? decision : { ...decision, ...(status && { status }) }
      },
    },
    fault: /it was ended, which was wanted|Berth had ended it/,
    options: { from: "idleVm", jobs: 1, faults: 1 },
  },
  {
    what: "garbage collection looks at the Launch that created the VM only",
    rules: { owns: (launch, vm) => launch?.metadata.name === vm.launch && launch.status?.handedTo === undefined },
    fault: /it was ended, which was wanted/,
    options: { from: "idleVm", jobs: 1, faults: 1 },
  },
  {
    what: "the bill of a successor begins at the VM's boot",
    rules: { takeoverOf: withOwnVm((vm) => ({ ...vm, createTime: vm?.bootTime })) },
    fault: /two bills do not meet|its Launches pay/,
    options: { from: "idleVm", jobs: 1, faults: 1 },
  },
  {
    what: "every Launch of a chain pays the cloud's minimum",
    rules: {
      takeoverOf: withOwnVm((vm) => {
        const { bootTime: _, ...rest } = vm ?? {}
        return rest
      }),
    },
    fault: /its Launches pay/,
    options: { from: "idleVm", jobs: 1, faults: 1 },
  },
  {
    what: "a VM that leaves is taken over",
    rules: { takeoverOf: (launch, predecessor, now) => takeoverOf(launch, without(predecessor, "leaveTime"), now) },
    fault: /Berth had ended it/,
    options: { from: "idleVm", jobs: 1, faults: 1 },
  },
  {
    what: "the lifetime of a job is taken for that of its VM",
    rules: {
      abandonedStatus: ({ spec: { vmLifetimeSeconds: _, ...spec }, ...launch }, ...rest) =>
        abandonedStatus({ ...launch, spec }, ...rest),
    },
    fault: /before its end/,
    options: { from: "nothing", jobs: 1, faults: 2 },
  },
]
