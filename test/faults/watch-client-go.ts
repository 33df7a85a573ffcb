import { createHash } from "node:crypto"
import { cp, readFile } from "node:fs/promises"
import { join } from "node:path"
import { cached, runLogged } from "../cached.ts"
import { startTied } from "../tied-process.ts"

const SOURCES = join(import.meta.dirname, "client-go")
const PROGRAM = "watcher"

/** State of client-go's reflector. */
export interface ClientGoState {
  version: string
  lists: number
  watches: number
  /** Uid and resourceVersion by name. */
  objects: Record<string, string>
}

/** Client-go's own reflector of ConfigMaps, in a process of its own. */
export interface ClientGo {
  state(): Promise<ClientGoState>
  stop(): Promise<void>
}

/** Starts it against an API server with plain HTTP. Go builds it once into the cache directory. */
export async function startClientGo(server: string, namespace: string): Promise<ClientGo> {
  const content = await Promise.all(["main.go", "go.mod", "go.sum"].map((name) => readFile(join(SOURCES, name))))
  const digest = createHash("sha256").update(Buffer.concat(content)).digest("hex").slice(0, 8)
  const directory = await cached({ name: `client-go-${PROGRAM}-${digest}`, proof: PROGRAM, make: build })
  const child = await startTied(join(directory, PROGRAM), [server, namespace], {
    ready: /listening on (http:\S+)/,
  })
  return {
    state: async () => (await (await fetch(child.address)).json()) as ClientGoState,
    stop: () => child.stop(),
  }
}

async function build(directory: string): Promise<void> {
  const say = (line: string) => console.log(`client-go: ${line}`)
  say(`building with Go into ${directory}: some minutes, this once`)
  const module = join(directory, "module")
  await cp(SOURCES, module, { recursive: true })
  const settings = ["CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false"]
  const output = join(directory, PROGRAM)
  await runLogged("env", [...settings, "go", "build", "-C", module, "-o", output, "."], say)
}
