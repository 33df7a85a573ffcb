// CPU time of everything that runs on this machine, by kind of process and by test file. Linux only; plain JavaScript for
// any Node.js.
//   node usage.mjs sample FILE WORKERS      samples until SIGTERM, then writes FILE. WORKERS is a folder that says which test
//                                           file a worker runs: <pid> has its name
//   node usage.mjs report FILE DURATIONS    prints FILE's figures and the ten slowest of DURATIONS (`<seconds> <file>` lines)
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"

const TICKS_PER_SECOND = 100
const INTERVAL_MS = 2000

/** The first pattern that a command line matches is its kind. */
const KINDS = [
  ["etcd", /(^|\/)etcd /],
  ["kube-apiserver", /(^|\/)kube-apiserver /],
  ["kube-controller-manager", /(^|\/)kube-controller-manager /],
  ["test workers", /vitest\/dist\/workers\//],
  ["vitest", /vitest\.mjs/],
  ["agents", /main\.ts agent |test-agent\.mjs|(berth|agent)\.mjs agent /],
  ["operators and façades", /e2e\/processes\/|berth\.mjs |src\/main\.ts /],
  ["Go builds", /(^|\/)go (build|install|list|mod)|\/pkg\/tool\/\S+\/(compile|link|asm|cgo) /],
  ["Python", /(^|\/)python[0-9.]* |schemathesis/],
  ["browsers", /(^|\/)(chrome|chromium)/],
  ["Docker engine", /(^|\/)(dockerd|containerd|containerd-shim-runc-v2|runc|docker-proxy|docker) /],
  ["types and lint", /(^|\/)tsc |biome/],
  ["npm", /(^|\/)npm /],
  ["other Node.js", /(^|\/)node /],
]

const [command, file, other] = process.argv.slice(2)
if (command === "sample") sample()
else report()

function sample() {
  const began = { wall: Date.now(), busy: busySeconds() }
  /** Last known CPU seconds of each process, by pid and start time; what ran before counts from now on. */
  const processes = new Map(
    processTable().map(({ id, kind = "others", seconds }) => [id, { kind, from: seconds, seconds }]),
  )
  /** CPU seconds by test file: of its worker while it runs there, and of the processes that it starts. */
  const files = {}
  const look = () => {
    const table = processTable()
    const parents = new Map(table.map(({ pid, parent }) => [pid, parent]))
    for (const { id, pid, kind, seconds } of table) {
      const before = processes.get(id) ?? { from: 0, seconds: 0, owner: startedBy(pid, parents) }
      const running = fileOf(pid)
      // What a process does after its parent's end, or its file's, counts for the file that started it.
      const owner = running ?? before.owner
      if (owner !== undefined) files[owner] = (files[owner] ?? 0) + seconds - before.seconds
      // A process that has ended, and is not waited for yet, has no command line any more. A worker has no owner.
      const known = { ...before, kind: kind ?? before.kind ?? "others", seconds }
      processes.set(id, running === undefined ? known : { ...known, owner: undefined })
    }
  }
  const timer = setInterval(look, INTERVAL_MS)
  process.once("SIGTERM", () => {
    clearInterval(timer)
    look()
    const kinds = {}
    for (const { kind, from, seconds } of processes.values()) kinds[kind] = (kinds[kind] ?? 0) + seconds - from
    const total = busySeconds() - began.busy
    writeFileSync(file, JSON.stringify({ wallSeconds: (Date.now() - began.wall) / 1000, total, kinds, files }))
  })
}

/** Returns the test file that a worker runs now. */
function fileOf(pid) {
  try {
    return readFileSync(join(other, pid), "utf8")
  } catch {
    return undefined
  }
}

function startedBy(pid, parents) {
  for (let parent = parents.get(pid); parent !== undefined && parent !== "0"; parent = parents.get(parent)) {
    const running = fileOf(parent)
    if (running !== undefined) return running
  }
  return undefined
}

/** CPU seconds that the machine has spent since its start. */
function busySeconds() {
  const [, user, nice, system, , , irq, softirq] = readFileSync("/proc/stat", "utf8").split("\n", 1)[0].split(/ +/)
  return (Number(user) + Number(nice) + Number(system) + Number(irq) + Number(softirq)) / TICKS_PER_SECOND
}

function processTable() {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
        // The program's name, in brackets, may hold spaces.
        const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
        const [parent, user, system, start] = [fields[1], fields[11], fields[12], fields[19]]
        const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")
        const kind = line === "" ? undefined : (KINDS.find(([, pattern]) => pattern.test(line))?.[0] ?? "others")
        return [
          { id: `${pid} ${start}`, pid, parent, kind, seconds: (Number(user) + Number(system)) / TICKS_PER_SECOND },
        ]
      } catch {
        // It has ended since the folder was read.
        return []
      }
    })
}

function printMost(title, rows, count) {
  console.log(title)
  const most = rows.sort(([a], [b]) => b - a).slice(0, count)
  for (const [seconds, name] of most) console.log(`  ${seconds.toFixed(0).padStart(6)}  ${name}`)
}

function report() {
  const slowest = readFileSync(other, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => [Number.parseFloat(line), line.slice(line.indexOf(" ") + 1)])
  const { wallSeconds, total, kinds, files } = JSON.parse(readFileSync(file, "utf8"))
  printMost("ci: the ten slowest test files, seconds", slowest, 10)
  const dearest = Object.entries(files).map(([name, seconds]) => [seconds, name])
  printMost("ci: the test files that use the most CPU-seconds, without the programs that files share", dearest, 40)
  const known = Object.values(kinds).reduce((sum, seconds) => sum + seconds, 0)
  const rows = Object.entries({ ...kinds, "too short to sample": Math.max(0, total - known) })
  console.log("ci: CPU-seconds by kind of process")
  for (const [kind, seconds] of rows.sort(([, a], [, b]) => b - a))
    if (seconds >= 1) console.log(`  ${seconds.toFixed(0).padStart(6)}  ${kind}`)
  console.log(`ci: ${total.toFixed(0)} CPU-seconds in ${wallSeconds.toFixed(0)} s`)
}
