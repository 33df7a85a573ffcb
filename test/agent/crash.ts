import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { basename } from "node:path"

/**
 * Preload of an agent's process that kills itself, as `kill -9` would, at one change of its disk after its first finish is
 * stored. `CRASH_AT` names it: `before` or `after`, the changed file or `rm`, and the number of such a change.
 */
const [moment = "", name = "", number = ""] = (process.env["CRASH_AT"] ?? "").split(" ")

let isArmed = false
let seen = 0

/** Makes a change, and dies before or after it if it is the one. */
function change<Result>(what: string, act: () => Result): Result {
  const isIt = isArmed && what === name && ++seen === Number(number)
  if (isIt && moment === "before") process.kill(process.pid, "SIGKILL")
  const result = act()
  if (isIt) process.kill(process.pid, "SIGKILL")
  return result
}

const { renameSync } = fs
fs.renameSync = (from, to) => {
  isArmed ||= fs.readFileSync(from, "utf8").includes('"finishStored":true')
  change(basename(String(to)), () => renameSync(from, to))
}
const { rm } = fs.promises
fs.promises.rm = (path, options) => change("rm", () => rm(path, options))
syncBuiltinESMExports()
