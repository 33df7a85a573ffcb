import { findCondition } from "../../src/core/apis/conditions.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { isTerminal, type StoredJob } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import {
  AWAITED_OUTCOMES,
  type ObservedPrerequisite,
  type Prerequisite,
  prerequisiteText,
} from "../../src/core/apis/prerequisites.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { JOB_ARRAYS, JOBS, LAUNCHES } from "../../src/core/resources.ts"
import type { ControllerHarness, Operator } from "../harness/controllers.ts"
import { until } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { randomFrom } from "../random.ts"
import { Mortal } from "./mortal.ts"

/** Job or array of a graph. */
interface Node {
  name: string
  isArray: boolean
  after: Prerequisite[]
  /** True if its containers fail. */
  fails: boolean
  /** True if it is cancelled at some time. */
  isCancelled: boolean
}

/** Graph whose first job is deleted after its outcome is known, and whose name another job gets. */
interface Graph {
  nodes: Node[]
  isRenewed: boolean
}

/** End of an object, as a watch saw it first. */
interface End {
  phase: string
  reason: string
  /** The API server's versions grow with each write to it, whatever the kind. */
  version: number
}

/** Names of jobs whose containers fail. */
const FAILS = /-bad(-|$)/

function makeGraph(index: number, random: () => number): Graph {
  const isRenewed = index % 10 === 0
  const size = 2 + Math.floor(random() * 5)
  const nodes: Node[] = []
  for (let number = 0; number < size; number++) {
    const fails = !isRenewed && random() < 0.15
    const isArray = !isRenewed && random() < 0.15
    const after = nodes
      .filter(() => random() < 0.5)
      .map(({ name, isArray: isOfArray }) => ({
        ...(isOfArray ? { array: name } : { job: name }),
        ...(!isRenewed && { outcome: AWAITED_OUTCOMES[Math.floor(random() * 3)] as Prerequisite["outcome"] & string }),
      }))
    const name = `g${index}-${number}${fails ? "-bad" : ""}`
    nodes.push({ name, isArray, after, fails, isCancelled: !isRenewed && random() < 0.05 })
  }
  if (!isRenewed) return { nodes, isRenewed }
  // The last job waits for the first one, and for a gate that is made after the first one's name was given again.
  const gate = `g${index}-gate`
  const waits = { ...nodes[0], name: `g${index}-last`, after: [{ job: `g${index}-0` }, { job: gate }] } as Node
  return { nodes: [...nodes, waits], isRenewed }
}

/** Jobs, arrays and Launches, as watches saw them. */
class Seen {
  readonly ends = new Map<string, End>()
  /** Uids by the name that they had first. */
  readonly firstUids = new Map<string, string>()
  /** Versions at which Launches were created, by the uid of their job. */
  readonly launches = new Map<string, number[]>()
  /** Uids of the jobs of each array. */
  readonly jobsOfArrays = new Map<string, Set<string>>()
  readonly outcomes = new Map<string, string>()
  readonly breaches: string[] = []

  watch(object: StoredJob | StoredJobArray, isEnd: boolean, kind: string): void {
    const { uid, name, resourceVersion, labels } = object.metadata
    const status: StoredJob["status"] | StoredJobArray["status"] = object.status
    const { phase = "", conditions, after = [] } = status ?? {}
    const known = this.ends.get(uid)
    if (known !== undefined && known.phase !== phase) this.breaches.push(`${name}: ${known.phase}, then ${phase}`)
    if (!this.firstUids.has(`${kind}/${name}`)) this.firstUids.set(`${kind}/${name}`, uid)
    const reason = findCondition(conditions, "Ready")?.reason ?? ""
    if (known === undefined && isEnd) this.ends.set(uid, { phase, reason, version: Number(resourceVersion) })
    const array = labels?.[LABELS.arrayUid]
    if (array !== undefined) this.jobsOfArrays.set(array, (this.jobsOfArrays.get(array) ?? new Set()).add(uid))
    for (const prerequisite of after) this.#watchOutcome(object, prerequisite)
  }

  #watchOutcome({ metadata }: StoredJob | StoredJobArray, { outcome, ...prerequisite }: ObservedPrerequisite): void {
    if (outcome === undefined) return
    const key = `${metadata.uid} ${prerequisiteText(prerequisite)}`
    const before = this.outcomes.get(key) ?? outcome
    if (before !== outcome) this.breaches.push(`${metadata.name}: ${before}, then ${outcome}`)
    this.outcomes.set(key, outcome)
  }

  endOf(node: Node): End | undefined {
    return this.ends.get(this.uidOf(node))
  }

  uidOf({ name, isArray }: Pick<Node, "name" | "isArray">): string {
    return this.firstUids.get(`${isArray ? "array" : "job"}/${name}`) ?? ""
  }

  /** Versions at which the Launches of a node were created. */
  startsOf(node: Node): number[] {
    const uid = this.uidOf(node)
    const jobs = node.isArray ? [...(this.jobsOfArrays.get(uid) ?? [])] : [uid]
    return jobs.flatMap((job) => this.launches.get(job) ?? [])
  }
}

export interface GraphRun {
  graphs: number
  /** Number of times that the operator dies. */
  kills: number
  seed: number
  /** Maximum time, seconds. */
  seconds: number
}

/** Indexes of each array. */
const ARRAY_SIZE = 2

/**
 * Runs random graphs, whose jobs and arrays are created in any order, while operators die. Returns what breaks the rules:
 * a start before the end of a prerequisite, a second VM, an end other than the rule's, an outcome that changes.
 */
export async function runGraphs(
  harness: ControllerHarness,
  { graphs: count, kills, seed, seconds }: GraphRun,
): Promise<{ breaches: string[]; nodes: number; failed: number; cancelled: number }> {
  const random = randomFrom(seed)
  const graphs = Array.from({ length: count }, (_, index) => makeGraph(index, random))
  const nodes = graphs.flatMap((graph) => graph.nodes)
  const { client, namespace } = harness
  const ending = new AbortController()
  const jobs = new Reflector<StoredJob>({ client, resource: JOBS, namespace, logger: silentLogger })
  const arrays = new Reflector<StoredJobArray>({ client, resource: JOB_ARRAYS, namespace, logger: silentLogger })
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger: silentLogger })
  const seen = new Seen()
  jobs.onChange(({ current }) => current && seen.watch(current, isTerminal(current.status?.phase), "job"))
  arrays.onChange(
    ({ current }) => current && seen.watch(current, current.status?.completionTime !== undefined, "array"),
  )
  launches.onChange(({ old, current }) => {
    if (old !== undefined || current === undefined) return
    const { uid } = current.spec.job
    seen.launches.set(uid, [...(seen.launches.get(uid) ?? []), Number(current.metadata.resourceVersion)])
  })
  const loops = [jobs, arrays, launches].map((watch) => watch.run(ending.signal))
  loops.push(harness.agents(ending.signal, ({ spec }) => (FAILS.test(spec.job.name) ? "ContainerFailed" : "Succeeded")))
  const start = (): { mortal: Mortal; operator: Operator } => {
    const mortal = new Mortal(harness)
    const settings = { launchesPerMinute: 1_000_000 }
    return { mortal, operator: harness.operator({ clients: mortal, observeSeconds: 0.5, settings }) }
  }
  const progress = () => nodes.filter((node) => seen.endOf(node) !== undefined).length
  let { mortal, operator } = start()
  try {
    const made = createAll(harness, shuffled(nodes, random), seen)
    const renewed = inParallel(
      graphs.filter(({ isRenewed }) => isRenewed),
      8,
      (graph) => renew(harness, graph, seen, seconds),
    )
    for (let kill = 1; kill <= kills; kill++) {
      await until(`${kill} kills`, () => progress() >= (kill * nodes.length) / (kills + 2), seconds)
      mortal.kill()
      await operator.stop()
      ;({ mortal, operator } = start())
    }
    await Promise.all([made, renewed])
    await until("all have ended", () => progress() === nodes.length, seconds)
    const isSettled = () => jobs.store.list().every(({ status }) => status?.settled === true)
    await until("all have settled", isSettled, seconds)
  } finally {
    ending.abort()
    await Promise.all(loops)
    await operator.stop()
  }
  const ended = (phase: string) => nodes.filter((node) => seen.endOf(node)?.phase === phase).length
  const counts = { nodes: nodes.length, failed: ended("failed"), cancelled: ended("cancelled") }
  return { ...counts, breaches: [...seen.breaches, ...harness.cloud.breaches, ...findBreaches(nodes, seen)] }
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item)
}

/** Creates all jobs and arrays in this order, and cancels some of them at once or later. */
async function createAll(harness: ControllerHarness, nodes: readonly Node[], seen: Seen): Promise<void> {
  await inParallel(nodes, 8, async (node) => {
    const { name, isArray, after } = node
    const made = isArray
      ? await harness.submitArray(name, { size: ARRAY_SIZE, after })
      : await harness.submit(name, { after })
    // The watch may see only a later object of the name.
    seen.firstUids.set(`${isArray ? "array" : "job"}/${name}`, made.metadata.uid)
    if (!node.isCancelled) return
    if (isArray) await harness.changeArray(name, { cancelled: true })
    else await harness.cancel(name)
  })
}

/** Deletes the first job of a graph when the last one knows its outcome, gives its name to a cancelled job, and opens the gate. */
async function renew(harness: ControllerHarness, { nodes }: Graph, seen: Seen, seconds: number): Promise<void> {
  const [first, last] = [nodes[0], nodes.at(-1)]
  if (first === undefined || last === undefined) return
  const knows = () => seen.outcomes.has(`${seen.uidOf(last)} ${first.name}`)
  await until(`${last.name} knows ${first.name}`, knows, seconds)
  await harness.delete(first.name)
  const ref = { namespace: harness.namespace, name: first.name }
  await until(
    `${first.name} is deleted`,
    async () => (await ifFound(harness.client.get(JOBS, ref))) === undefined,
    seconds,
  )
  await harness.submit(first.name, { cancelled: true })
  await harness.submit(last.after[1]?.job ?? "")
}

/** Returns what breaks the rules, by the rules' text. */
function findBreaches(nodes: readonly Node[], seen: Seen): string[] {
  const byName = new Map(nodes.map((node) => [`${node.isArray ? "array/" : ""}${node.name}`, node]))
  return nodes.flatMap((node) => {
    const needs = node.after.flatMap((prerequisite) => {
      const of = byName.get(prerequisiteText(prerequisite))
      const end = of && seen.endOf(of)
      return end === undefined ? [] : [{ outcome: prerequisite.outcome ?? "succeeded", end }]
    })
    const isMet = needs.every(({ outcome, end: { phase } }) => outcome === "ended" || outcome === phase)
    const starts = seen.startsOf(node)
    const breaches = [
      needs.some(({ end: { version } }) => starts.some((at) => at < version)) && "started before a prerequisite's end",
      starts.length > (node.isArray ? ARRAY_SIZE : 1) && `had ${starts.length} VMs`,
      !isMet && starts.length > 0 && "started, and its prerequisites don't allow it",
      wrongEnd(node, isMet, seen.endOf(node)),
    ]
    return breaches.filter((breach) => typeof breach === "string").map((breach) => `${node.name}: ${breach}`)
  })
}

/** Returns what is wrong with the end of a node; undefined: nothing. */
function wrongEnd({ fails, isCancelled }: Node, isMet: boolean, end: End | undefined): string | undefined {
  if (isCancelled && end?.phase === "cancelled") return undefined
  if (!isMet) return end?.reason === "DependencyFailed" ? undefined : `ended as ${end?.phase}, ${end?.reason}`
  const wanted = fails ? "failed" : "succeeded"
  return end?.phase === wanted ? undefined : `ended as ${end?.phase}, ${end?.reason}, and not as ${wanted}`
}
