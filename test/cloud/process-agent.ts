import { ProcessRuntime } from "../../src/agent/runtimes/process.ts"

/** Agent reduced to the real process runtime: starts a command that starts another one, and keeps running. */
const disk = process.argv.at(-1) ?? ""
const command = ["sh", "-c", "sleep 600 & echo $! >inner; echo $$ >outer; wait"]
await new ProcessRuntime(disk).start({ run: { image: "none", command }, secretEnv: {}, gpus: 0 }, 1)
setInterval(() => {}, 60_000)
