import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { basename } from "node:path"

/**
 * Preload of a host's agent that kills itself, as `kill -9` would, at one change of its disk. `CRASH_AT` names it: `before` or
 * `after`, the changed file, and a text that it has from then on; or the removed folder.
 */
const [moment = "", name = "", content = ""] = (process.env["CRASH_AT"] ?? "").split(" ")

/** Makes a change, and dies before or after it if it is the one. */
function change<Result>(isIt: boolean, act: () => Result): Result {
  if (isIt && moment === "before") process.kill(process.pid, "SIGKILL")
  const result = act()
  if (isIt) process.kill(process.pid, "SIGKILL")
  return result
}

const { renameSync, readFileSync } = fs
fs.renameSync = (from, to) => {
  const isIt = content !== "" && basename(String(to)) === name && readFileSync(from, "utf8").includes(content)
  change(isIt, () => renameSync(from, to))
}
const { rm } = fs.promises
fs.promises.rm = (path, options) => change(content === "" && basename(String(path)) === name, () => rm(path, options))
syncBuiltinESMExports()
