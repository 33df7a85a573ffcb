import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { load } from "js-yaml"
import { beforeAll, expect, it } from "vitest"
import { CHART } from "../chart/helm.ts"
import { missingTool, needing } from "../needing.ts"
import { askPromql, type Series } from "./promql.ts"

const prometheus = needing(missingTool("promql"))

interface Rule {
  alert: string
  expr: string
  labels: { severity: string }
}

const file = load(await readFile(join(CHART, "files", "alerts.yaml"), "utf8")) as { groups: { rules: Rule[] }[] }
const rules = file.groups.flatMap((group) => group.rules)

/** Forty minutes of a constant value, and of growth by that much a minute. */
const MINUTES = 40
const steady = (value: number): number[] => Array.from({ length: MINUTES }, () => value)
const growing = (by: number): number[] => Array.from({ length: MINUTES }, (_, i) => i * by)

const of = (name: string, labels: Record<string, string>, values: number[]): Series => ({
  labels: { __name__: name, ...labels },
  values,
})
const leader = (program: string, value: number): Series =>
  of("leader_election_master_status", { program, name: "berth-operator", pod: `${value}` }, steady(value))
const silence = (labels: Record<string, string>, seconds: number): Series =>
  of("reflector_silence_seconds", { resource: "jobs", ...labels }, steady(seconds))
const failures = (labels: Record<string, string>, by: number): Series =>
  of("controller_runtime_reconcile_total", { controller: "job", result: "error", ...labels }, growing(by))
const requests = (program: string, status: string, by: number): Series =>
  of("http_request_duration_seconds_count", { program, status }, growing(by))
const outcomes = (outcome: string, values: number[]): Series =>
  of("berth_launches_total", { program: "operator", cloud: "aws", outcome }, values)
const vms = of("berth_vms", { program: "operator", cloud: "aws" }, steady(3))

const isCopy = (value: number): Series =>
  of("berth_cluster_is_copy", { program: "operator", pod: `${value}` }, steady(value))

const stored = (live: number, history: number): Series[] => [
  of("berth_stored_bytes", { program: "operator", part: "live" }, steady(live)),
  of("berth_stored_bytes", { program: "operator", part: "history" }, steady(history)),
  of("berth_stored_bytes_limit", { program: "operator", pod: "a" }, steady(100)),
  of("berth_stored_bytes_limit", { program: "operator", pod: "b" }, steady(100)),
]
const etcd = (size: number): Series[] => [
  of("etcd_mvcc_db_total_size_in_bytes", { instance: "a" }, steady(size)),
  of("etcd_server_quota_backend_bytes", { instance: "a" }, steady(100)),
]

const CASES: [alert: string, what: string, series: Series[], fires: boolean][] = [
  ["BerthHasNoLeader", "no operator runs", [], true],
  ["BerthHasNoLeader", "all operators wait", [leader("operator", 0)], true],
  ["BerthHasNoLeader", "another program leads", [leader("another", 1)], true],
  ["BerthHasNoLeader", "one leads and one waits", [leader("operator", 1), leader("operator", 0)], false],
  ["BerthRunsInACopiedCluster", "the leader is in a copy", [isCopy(1), isCopy(0)], true],
  ["BerthRunsInACopiedCluster", "no operator is in a copy", [isCopy(0)], false],
  ["BerthCacheIsDeaf", "a cache is silent", [silence({ program: "facade" }, 200)], true],
  [
    "BerthCacheIsDeaf",
    "only another program's cache is silent",
    [silence({ program: "facade" }, 50), silence({}, 200)],
    false,
  ],
  ["BerthReconcilesFail", "the operator's reconciles fail", [failures({ program: "operator" }, 30)], true],
  [
    "BerthReconcilesFail",
    "only another program's reconciles fail",
    [failures({ program: "operator" }, 0), failures({}, 30)],
    false,
  ],
  ["BerthStorageIsFull", "live objects fill more than 80 % of the limit", stored(81, 0), true],
  ["BerthStorageIsFull", "history fills the limit", stored(40, 60), false],
  ["EtcdIsNearItsQuota", "etcd is above 80 % of its quota", etcd(81), true],
  ["EtcdIsNearItsQuota", "etcd is at half of its quota", etcd(50), false],
  ["EtcdIsNearItsQuota", "etcd exports no metrics", [], false],
  ["BerthVmsDontRegister", "no VM has ever registered", [vms, outcomes("terminated", growing(1))], true],
  [
    "BerthVmsDontRegister",
    "no VM has registered since the start",
    [vms, outcomes("registered", steady(0)), outcomes("terminated", growing(1))],
    true,
  ],
  [
    "BerthVmsDontRegister",
    "VMs register",
    [vms, outcomes("registered", growing(1)), outcomes("terminated", growing(1))],
    false,
  ],
  [
    "BerthFacadeFails",
    "every tenth request fails",
    [requests("facade", "200", 90), requests("facade", "500", 10)],
    true,
  ],
  [
    "BerthFacadeFails",
    "every hundredth request fails",
    [requests("facade", "200", 99), requests("facade", "500", 1)],
    false,
  ],
  [
    "BerthFacadeFails",
    "only another program's requests fail",
    [requests("facade", "200", 99), requests("another", "500", 50)],
    false,
  ],
]

prometheus.describe("an alert", () => {
  let fires: boolean[]

  beforeAll(async () => {
    const questions = CASES.map(([alert, , series]) => {
      return { expr: rules.find((rule) => rule.alert === alert)?.expr ?? "", series }
    })
    fires = (await askPromql(questions)).map(({ results }) => results > 0)
  })

  it.each(CASES.map(([alert, what, , fires], i) => [alert, fires ? "fires" : "is silent", what, fires, i] as const))(
    "%s %s when %s",
    (_alert, _does, _what, expected, i) => {
      expect(fires[i]).toBe(expected)
    },
  )

  it("has test cases here for every rule, and a severity", () => {
    expect([...new Set(CASES.map(([alert]) => alert))]).toEqual(rules.map(({ alert }) => alert))
    for (const { alert, labels } of rules) expect(["critical", "warning"], alert).toContain(labels.severity)
  })
})
