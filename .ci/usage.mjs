// CPU time of everything that runs on this machine, by kind of process. Linux only; plain JavaScript for any Node.js.
//   node usage.mjs sample FILE              samples until SIGTERM, then writes FILE
//   node usage.mjs report FILE DURATIONS    prints FILE's figures and the ten slowest of DURATIONS (`<seconds> <file>` lines)
import { readdirSync, readFileSync, writeFileSync } from "node:fs"

const TICKS_PER_SECOND = 100
const INTERVAL_MS = 2000

/** The first pattern that a command line matches is its kind. */
const KINDS = [
  ["etcd", /(^|\/)etcd /],
  ["kube-apiserver", /(^|\/)kube-apiserver /],
  ["kube-controller-manager", /(^|\/)kube-controller-manager /],
  ["test workers", /vitest\/dist\/workers\//],
  ["vitest", /vitest\.mjs/],
  ["agents", /main\.ts agent |test-agent\.mjs|berth\.mjs agent /],
  ["operators and façades", /e2e\/processes\/|berth\.mjs |src\/main\.ts /],
  ["Go builds", /(^|\/)go (build|install|list|mod)|\/pkg\/tool\/\S+\/(compile|link|asm|cgo) /],
  ["Python", /(^|\/)python[0-9.]* |schemathesis/],
  ["browsers", /(^|\/)(chrome|chromium)/],
  ["Docker engine", /(^|\/)(dockerd|containerd|containerd-shim-runc-v2|runc|docker-proxy|docker) /],
  ["types and lint", /(^|\/)tsc |biome/],
  ["npm", /(^|\/)npm /],
  ["other Node.js", /(^|\/)node /],
]

const [command, file, durations] = process.argv.slice(2)
if (command === "sample") sample()
else report()

function sample() {
  const began = { wall: Date.now(), busy: busySeconds() }
  /** Last known CPU seconds of each process, by pid and start time; what ran before counts from now on. */
  const processes = new Map(
    processTable().map(({ id, kind = "others", seconds }) => [id, { kind, from: seconds, seconds }]),
  )
  const look = () => {
    for (const { id, kind, seconds } of processTable()) {
      const before = processes.get(id)
      // A process that has ended, and is not waited for yet, has no command line any more.
      processes.set(id, { kind: kind ?? before?.kind ?? "others", from: before?.from ?? 0, seconds })
    }
  }
  const timer = setInterval(look, INTERVAL_MS)
  process.once("SIGTERM", () => {
    clearInterval(timer)
    look()
    const kinds = {}
    for (const { kind, from, seconds } of processes.values()) kinds[kind] = (kinds[kind] ?? 0) + seconds - from
    const total = busySeconds() - began.busy
    writeFileSync(file, JSON.stringify({ wallSeconds: (Date.now() - began.wall) / 1000, total, kinds }))
  })
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
        const [user, system, start] = [fields[11], fields[12], fields[19]]
        const line = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")
        const kind = line === "" ? undefined : (KINDS.find(([, pattern]) => pattern.test(line))?.[0] ?? "others")
        return [{ id: `${pid} ${start}`, kind, seconds: (Number(user) + Number(system)) / TICKS_PER_SECOND }]
      } catch {
        // It has ended since the folder was read.
        return []
      }
    })
}

function report() {
  const slowest = readFileSync(durations, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => [Number.parseFloat(line), line.slice(line.indexOf(" ") + 1)])
    .sort(([a], [b]) => b - a)
  console.log("ci: the ten slowest test files, seconds")
  for (const [seconds, name] of slowest.slice(0, 10)) console.log(`  ${seconds.toFixed(0).padStart(6)}  ${name}`)
  const { wallSeconds, total, kinds } = JSON.parse(readFileSync(file, "utf8"))
  const known = Object.values(kinds).reduce((sum, seconds) => sum + seconds, 0)
  const rows = Object.entries({ ...kinds, "too short to sample": Math.max(0, total - known) })
  console.log("ci: CPU-seconds by kind of process")
  for (const [kind, seconds] of rows.sort(([, a], [, b]) => b - a))
    if (seconds >= 1) console.log(`  ${seconds.toFixed(0).padStart(6)}  ${kind}`)
  console.log(`ci: ${total.toFixed(0)} CPU-seconds in ${wallSeconds.toFixed(0)} s`)
}
