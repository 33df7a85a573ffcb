import { execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { readdir, realpath } from "node:fs/promises"
import { join } from "node:path"
import { WebSocket } from "ws"
import { docker, followProgress } from "../agent/images.ts"
import { pythonEnvironment } from "../python-environment.ts"

/** Prepares a Jupyter server in an environment of its own. Returns the path of its Python. */
export async function jupyterPython(): Promise<string> {
  const programs = await pythonEnvironment("jupyter_server", join(import.meta.dirname, "jupyter-requirements.txt"))
  return join(programs, "python")
}

/** Parts of Python's library that no server needs. */
const UNUSED = ["site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "__pycache__", "config-*"]

/** Builds an image of this machine's Python and the environment that a Python is in, at the same paths as here. */
export async function pythonImage(python: string, name: string): Promise<void> {
  const base = "import sys, sysconfig; print(sysconfig.get_path('stdlib', vars={'base': sys.base_prefix}))"
  const library = execFileSync(python, ["-c", base], { encoding: "utf8" }).trim()
  const program = await realpath(python)
  const environment = join(python, "..", "..")
  const binaries = (await readdir(environment, { recursive: true })).filter((path) => /\.so[.\d]*$/.test(path))
  const modules = (await readdir(join(library, "lib-dynload"))).map((path) => join(library, "lib-dynload", path))
  const libraries = sharedLibraries([program, ...modules, ...binaries.map((path) => join(environment, path))])
  const folders = [library, environment]
  // An image has each path once.
  const others = libraries.filter((path) => !folders.some((folder) => path.startsWith(`${folder}/`)))
  const files = [program, ...others, ...folders].map((path) => path.slice(1))
  const left = UNUSED.map((part) => `--exclude=${library.slice(1)}/${part}`)
  const options = ["--create", "--directory=/", "--dereference", "--hard-dereference", ...left]
  const tar = spawn("tar", [...options, ...files], { stdio: ["ignore", "pipe", "inherit"] })
  const [repo = "", tag = ""] = name.split(":")
  await followProgress(await docker.importImage(tar.stdout, { repo, tag }))
}

/** Returns the paths of the libraries that programs load, and of their loader. */
function sharedLibraries(programs: readonly string[]): string[] {
  const text = execFileSync("ldd", programs, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })
  return [...new Set(text.match(/\/\S+(?= \(0x)/g) ?? [])]
}

/** Connection to a kernel, by which it runs code. */
export class Kernel {
  readonly #socket: WebSocket
  readonly closed: Promise<unknown>

  private constructor(socket: WebSocket) {
    this.#socket = socket
    this.closed = once(socket, "close")
    socket.on("error", () => undefined)
  }

  /** @throws Error if the server does not answer with a WebSocket */
  static async connect(server: string, kernel: string): Promise<Kernel> {
    const socket = new WebSocket(`${server.replace(/^http/, "ws")}/api/kernels/${kernel}/channels`)
    const opened = new Kernel(socket)
    await Promise.race([once(socket, "open"), opened.closed.then(() => Promise.reject(new Error("it was closed")))])
    return opened
  }

  /** Runs code, and returns the text of its result. */
  async run(code: string): Promise<string> {
    const id = crypto.randomUUID()
    const header = { msg_id: id, msg_type: "execute_request", username: "", session: id, version: "5.3", date: "" }
    const content = { code, silent: false, store_history: true, user_expressions: {}, allow_stdin: false }
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    this.#socket.on("message", (data: Buffer) => {
      const message = JSON.parse(data.toString())
      if (message.parent_header.msg_id !== id) return
      if (message.msg_type === "execute_result") resolve(message.content.data["text/plain"])
      if (message.msg_type === "error") reject(new Error(message.content.evalue))
    })
    this.#socket.send(
      JSON.stringify({ header, parent_header: {}, metadata: {}, content, channel: "shell", buffers: [] }),
    )
    return await Promise.race([promise, this.closed.then(() => Promise.reject(new Error("the connection was closed")))])
  }

  close(): void {
    this.#socket.close()
  }
}
