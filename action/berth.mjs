// How both programs of the action call the command `berth`. Plain JavaScript without packages: nothing is built.

import { spawn } from "node:child_process"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** Returns an input of the step; "" without one. The runner passes inputs as variables. */
export function input(name) {
  return (process.env[`INPUT_${name.toUpperCase()}`] ?? "").trim()
}

/** Node.js of the runner, with which the action runs. */
const NODE = process.execPath
const TOKEN_PROGRAM = join(import.meta.dirname, "token.mjs")

/** Returns the variables of child processes. The configuration of a person on this runner is not for them. */
export function environment() {
  const { BERTH_TOKEN: _, ...inherited } = process.env
  const home = join(temporaryFolder(), "berth-home")
  const key = input("api-key")
  const proof = key
    ? { BERTH_API_KEY: key }
    : { BERTH_API_KEY: "", BERTH_TOKEN_COMMAND: `"${NODE}" "${TOKEN_PROGRAM}"`, BERTH_AUDIENCE: audience() }
  return {
    ...inherited,
    ...{ BERTH_URL: input("url"), BERTH_PROJECT: input("project"), ...proof },
    ...{ XDG_CONFIG_HOME: home, XDG_STATE_HOME: home, NO_COLOR: "1", NODE_USE_ENV_PROXY: "1" },
  }
}

/** Returns the folder that the runner empties after the job. */
export function temporaryFolder() {
  return process.env.RUNNER_TEMP || tmpdir()
}

/** Never the wish of a server: a token for another service would be a proof there. */
function audience() {
  return input("audience") || input("url").replace(/\/+$/, "")
}

/**
 * Runs a program of Node.js to its end. Its standard error passes through `onText`.
 * @param isSignalled true if the program gets this process' signals, false if it ends undisturbed
 */
export function run(argv, { onText = () => {}, isSignalled = false } = {}) {
  // A process group of its own: a signal to the group of this process does not reach it.
  const child = spawn(NODE, argv, {
    env: environment(),
    stdio: ["ignore", "pipe", "pipe"],
    detached: process.platform !== "win32",
  })
  const said = { out: "", err: "" }
  child.stdout.setEncoding("utf8").on("data", (piece) => {
    said.out += piece
  })
  child.stderr.setEncoding("utf8").on("data", (piece) => {
    said.err = (said.err + piece).slice(-10_000)
    onText(piece)
  })
  const pass = (signal) => child.kill(signal)
  if (isSignalled) for (const signal of SIGNALS) process.once(signal, pass)
  return new Promise((resolve, reject) => {
    child.once("error", reject)
    child.once("close", (code) => {
      for (const signal of SIGNALS) process.off(signal, pass)
      resolve({ code, ...said })
    })
  })
}

/** Signals by which a runner ends the step of a cancelled workflow. */
export const SIGNALS = ["SIGINT", "SIGTERM"]

/** Returns what a command said about its failure, in the API's words. */
export function wordsOf({ err }) {
  const at = err.lastIndexOf("berth: ")
  return (at < 0 ? err : err.slice(at + "berth: ".length)).trim()
}
