import { execFile, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { packCli } from "../../scripts/release.ts"
import { agentProgram } from "../harness/agent-program.ts"
import { Program } from "../harness/program-process.ts"
import { missingTool, needing } from "../needing.ts"
import { Browser } from "../sign-in.ts"
import { oldestNode } from "./oldest-node.ts"
import { onTerminal } from "./pty.ts"

/** The packaged command as a process, against everything on one machine: jobs really run. */
const ROOT = join(import.meta.dirname, "..", "..")
/** Folder of the package, in the folder that it is installed in. */
const INSTALLED = join("node_modules", "@berth-dev", "cli")
let folder: string
let stack: Program
let berth: string
let variables: Record<string, string>
let tarball: string
const oldestNeeded = needing(missingTool("the oldest Node.js"))
const zshNeeded = needing(missingShell("zsh"))
const fishNeeded = needing(missingShell("fish"))

function missingShell(name: string): string | undefined {
  return spawnSync(name, ["--version"]).status === 0 ? undefined : `${name} is missing (Debian's package ${name})`
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-cli-"))
  const dataDir = join(folder, "data")
  const files = ["--data-dir", dataDir, "--config-home", join(folder, "config")]
  const vms = ["--runtime", "process", "--agent-program", agentProgram()[0]]
  stack = new Program("serve", [join(ROOT, "dev", "main.ts"), "serve", "--port", "0", ...vms, ...files])
  await packAndInstall()
  await stack.printed(/Berth is up at/, 240)
  const text = await readFile(join(dataDir, "env"), "utf8")
  variables = Object.fromEntries(
    [...text.matchAll(/^(BERTH_\w+)=(.*)$/gm)].map(([, name = "", value = ""]) => [name, value]),
  )
})
afterAll(async () => {
  await stack.stop("SIGINT")
  await rm(folder, { recursive: true, force: true })
})

/** Makes the tarball, and installs it in a folder without anything else. */
async function packAndInstall(): Promise<void> {
  tarball = await packCli(folder)
  await writeFile(join(folder, "package.json"), "{}")
  const flags = ["--silent", "--offline", "--no-audit", "--no-fund"]
  await promisify(execFile)("npm", ["install", ...flags, tarball], { cwd: folder })
  berth = `${process.execPath} ${join(folder, INSTALLED, "berth.mjs")}`
}

interface Ended {
  code: number | null
  out: string
  err: string
}

/** Runs a command line in a shell, without a terminal. */
async function shell(command: string, environment: Record<string, string> = variables): Promise<Ended> {
  const env = { PATH: process.env["PATH"], HOME: folder, ...environment }
  const child = spawn("bash", ["-c", command.replaceAll("berth ", `${berth} `)], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  })
  let [out, err] = ["", ""]
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    out += piece
  })
  child.stderr.setEncoding("utf8").on("data", (piece: string) => {
    err += piece
  })
  const [code] = (await once(child, "close")) as [number | null]
  return { code, out, err }
}

const terminal = (command: string, environment: Record<string, string> = {}) =>
  onTerminal(command.replaceAll("berth ", `${berth} `), { ...variables, HOME: folder, ...environment })

const RUN = "berth run --image busybox:1.36 --entrypoint sh"

describe("the package", () => {
  it("has one program and no dependency, and starts by npx", async () => {
    const manifest = JSON.parse(await readFile(join(folder, INSTALLED, "package.json"), "utf8"))
    expect(manifest).toMatchObject({
      name: "@berth-dev/cli",
      bin: { berth: "berth.mjs" },
      engines: { node: ">=22.12" },
    })
    expect(manifest).not.toHaveProperty("dependencies")
    const path = `${join(process.execPath, "..")}:${process.env["PATH"]}`
    const { stdout } = await promisify(execFile)("npx", ["--offline", "berth", "--version"], {
      cwd: folder,
      env: { ...process.env, PATH: path },
    })
    expect(stdout.trim()).toBe(manifest.version)
  })
})

oldestNeeded.describe("the package on the oldest Node.js that it names", () => {
  const onOldest = async (command: string): Promise<Ended> => {
    const node = await oldestNode()
    // npx as npm has it, and no other node in the PATH.
    return shell(command, { ...variables, PATH: `${dirname(node)}:/usr/local/bin:/usr/bin:/bin` })
  }

  oldestNeeded.it("runs a job to its end, by npx from the tarball", async () => {
    const { code, out, err } = await onOldest(
      `node --version && npx --yes --offline --package ${tarball} berth${RUN.slice("berth".length)} -y -- -c 'echo Ahoy; exit 9'`,
    )
    expect([code, out], err).toEqual([9, "v22.12.0\nAhoy\n"])
  })
})

describe("the network", () => {
  it("is used for the API only: for no cloud, no Kubernetes API and no telemetry", async () => {
    const log = join(folder, "connections")
    const preload = join(folder, "preload.mjs")
    // Each connection of the process is created by this function.
    await writeFile(
      preload,
      `import { subscribe } from "node:diagnostics_channel"
       import { appendFileSync } from "node:fs"
       subscribe("net.client.socket", ({ socket }) =>
         socket.once("connectionAttempt", (ip, port) => appendFileSync(process.env.CONNECTIONS, ip + ":" + port + "\\n")))`,
    )
    const environment = {
      ...variables,
      NODE_OPTIONS: `--import=${preload}`,
      CONNECTIONS: log,
      AWS_ACCESS_KEY_ID: "AKIA0",
      AWS_SECRET_ACCESS_KEY: "x",
      AWS_REGION: "eu-west-1",
      GOOGLE_CLOUD_PROJECT: "acme",
    }
    const commands = [
      `${RUN} --yes --name alone -- -c true`,
      ...["ps -a", "show alone", "logs alone", "check", "offers --gpu L4", "connection ls", "key ls", "cron ls"],
      ...["discover buckets", "version", "completion bash", "context ls"],
    ]
    for (const command of commands) {
      const { code, err } = await shell(command.startsWith("berth ") ? command : `berth ${command}`, environment)
      expect(code, `${command}: ${err}`).toBe(0)
    }
    const reached = new Set((await readFile(log, "utf8")).trim().split("\n"))
    expect(reached).toEqual(new Set([new URL(variables["BERTH_URL"] ?? "").host]))
  })
})

describe("a run to its end", () => {
  it("shows plan, question and log on a terminal, and ends with the container's exit code", async () => {
    const running = terminal(`${RUN} --name asked -- -c 'echo Ahoy; exit 7'`)
    await running.shows("Submit? [Y/n]")
    expect(running.output()).toContain("← takes this")
    running.type("y\n")
    const { code, output } = await running.ended
    expect([code, output]).toEqual([7, expect.stringMatching(/Ahoy\r\n[\s\S]*asked: .*failed.*, exit code 7/)])
    expect(output).toContain("\u001b[31mfailed")
  })

  it("a job's log colors a terminal, and changes nothing else of it; a pipe gets every byte", async () => {
    const [color, others] = ["\\033[31mred\\033[0m", "\\033]52;c;aGk=\\007\\033[2J\\033]0;title\\007\\033[6n"]
    const script = `printf "before${others}${color}${others}after\\n"`
    const { output } = await terminal(`${RUN} --yes --name painter -- -c '${script}'`).ended
    expect(output).toContain("before\u001b[31mred\u001b[0mafter\r\n")
    const again = await terminal("berth logs painter").ended
    expect(again.output).toBe("before\u001b[31mred\u001b[0mafter\r\n")
    const { out } = await shell("berth logs painter")
    const sequences = "\u001b]52;c;aGk=\u0007\u001b[2J\u001b]0;title\u0007\u001b[6n"
    expect(out).toBe(`before${sequences}\u001b[31mred\u001b[0m${sequences}after\n`)
  })

  it("a no, Ctrl-C and Ctrl-D at the question submit nothing", async () => {
    for (const [typed, code] of [
      ["n\n", 125],
      ["\u0003", 130],
      ["\u0004", 130],
    ] as const) {
      const running = terminal(`${RUN} --name refused -- -c true`)
      await running.shows("Submit? [Y/n]")
      running.type(typed)
      expect((await running.ended).code).toBe(code)
    }
    expect((await shell("berth show refused")).code).toBe(7)
  })

  it("Ctrl-C while it runs detaches, and the job runs on", async () => {
    const running = terminal(`${RUN} --yes --name long -- -c 'echo begun; sleep 600'`)
    await running.shows("begun")
    running.type("\u0003")
    const { code, output } = await running.ended
    expect([code, output]).toEqual([130, expect.stringContaining("Detached: long runs on. berth attach long")])
    expect((await shell("berth ps -q")).out).toContain("long\n")
    expect((await shell("berth cancel long")).out).toBe("long cancelled\n")
    expect((await shell("berth attach long")).code).toBe(125)
  })

  it("writes only the log to standard output without a terminal, without colors", async () => {
    const { code, out, err } = await shell(`${RUN} --yes -- -c 'echo out; echo err >&2; exit 255'`)
    expect([code, out.split("\n").toSorted()]).toEqual([255, ["", "err", "out"]])
    expect(err).toContain("← takes this")
    expect(out + err).not.toContain("\u001b")
  })

  it("ends with 124 after the timeout; --json distinguishes it from a container's own 124", async () => {
    const late = await shell(`${RUN} --yes --json --timeout 1s -- -c 'sleep 600'`)
    const own = await shell(`${RUN} --yes --json -- -c 'exit 124'`)
    expect([late.code, JSON.parse(late.out).reason]).toEqual([124, "DeadlineExceeded"])
    expect([own.code, JSON.parse(own.out).reason]).toEqual([124, "ContainerFailed"])
  })

  it("show prints the timeline and the VMs", async () => {
    await shell(`${RUN} --yes --name shown -- -c true`)
    const { out } = await shell("berth show shown")
    expect(out).toMatch(/^shown {2}succeeded, exit code 0\n/)
    expect(out).toMatch(/What happened \(UTC\)\n {2}20\d\d-/)
    expect(out).toMatch(/VMs\n {2}#/)
  })
})

describe("output", () => {
  it("has colors on a terminal, and none with NO_COLOR, --no-color or TERM=dumb", async () => {
    const hasColors = async (flags: string, environment?: Record<string, string>) =>
      (await terminal(`berth ps -a ${flags}`, environment).ended).output.includes("\u001b")
    expect(await hasColors("")).toBe(true)
    expect(await hasColors("", { NO_COLOR: "1" })).toBe(false)
    expect(await hasColors("", { TERM: "dumb" })).toBe(false)
    expect(await hasColors("--no-color")).toBe(false)
  })

  it("ps -w draws the list in place, until Ctrl-C", async () => {
    await shell(`${RUN} --detach --yes -q --name drawn -- -c 'sleep 600'`)
    const watching = terminal("berth ps -w --no-color")
    await watching.shows("drawn")
    await shell("berth cancel drawn")
    await watching.shows("No jobs.")
    watching.type("\u0003")
    const { code, output } = await watching.ended
    expect(code).toBe(130)
    // The cursor moves up over the former list.
    expect(output.split("\u001b[?7lNo jobs.")[0]).toMatch(/\[\d+A$/)
  })

  it("is quiet when the reader of a pipe stops", async () => {
    const noisy = await shell(`set -o pipefail; ${RUN} --yes -q -- -c 'yes' | head -1`)
    expect([noisy.code, noisy.out, noisy.err]).toEqual([141, "y\n", ""])
    expect((await shell("berth --help | head -1")).err).toBe("")
    await shell("berth cancel --status running --yes")
  })
})

describe("sign-in", () => {
  const config = () => ({ XDG_CONFIG_HOME: join(folder, "me"), BERTH_URL: "", BERTH_API_KEY: "" })

  it("npm start is a context by itself", async () => {
    const own = { XDG_CONFIG_HOME: join(folder, "config") }
    expect((await shell("berth ps -a", own)).code).toBe(0)
    expect((await shell("berth context ls -q", own)).out).toBe("local\n")
  })

  it("works with a browser on this machine, then asks for an organization and a project", async () => {
    const browser = join(folder, "browser")
    const opened = join(folder, "opened")
    await writeFile(browser, `#!/bin/sh\necho "$1" > ${opened}.part && mv ${opened}.part ${opened}\n`)
    await chmod(browser, 0o755)
    const signing = terminal(`berth login ${variables["BERTH_URL"]} --context me`, { ...config(), BROWSER: browser })
    const address = await expect
      .poll(() => readFile(opened, "utf8").catch(() => ""))
      .not.toBe("")
      .then(() => readFile(opened, "utf8"))
    await new Browser().agree(address.trim(), { login: "ada" })
    expect(await signing.ended).toMatchObject({ code: 0, output: expect.stringContaining("The context is now me.") })
    expect((await stat(join(folder, "me", "berth", "config.json"))).mode & 0o777).toBe(0o600)
    const made = await shell(
      "berth org create Acme && berth project use $(berth project create Reports) && berth ps",
      config(),
    )
    expect(made.code, made.err).toBe(0)
    expect((await shell("berth check", config())).out).toContain("person ada@localhost")
  })

  it("a token that ends is renewed by requests at the same time, once", async () => {
    const file = join(folder, "me", "berth", "config.json")
    const text = await readFile(file, "utf8")
    await writeFile(file, text.replace(/"expiresAt": "[^"]*"/, '"expiresAt": "2020-01-01T00:00:00Z"'))
    const listed = await shell("berth ps && berth ps", config())
    expect(listed.code, listed.err).toBe(0)
    expect(await readFile(file, "utf8")).not.toContain("2020-01-01")
  })

  it("works with a browser on another device", async () => {
    const signing = terminal(`berth login ${variables["BERTH_URL"]} --device --context other`, config())
    await signing.shows(" and confirm if it shows the code")
    const [, address = ""] = /Open (\S+)/.exec(signing.output()) ?? []
    await new Browser().agree(address, { login: "grace" })
    expect(await signing.ended).toMatchObject({ code: 0, output: expect.stringContaining("The context is now other.") })
  })

  it("works with a key from standard input; a key as a flag is rejected, and not repeated", async () => {
    const { BERTH_API_KEY: key = "", BERTH_URL: url = "" } = variables
    expect((await shell(`echo ${key} | berth login ${url} --key - --context key`, config())).code).toBe(0)
    expect((await shell("berth context show --json", config())).out).not.toContain(key)
    const refused = await shell(`berth login ${url} --key ${key}`, config())
    expect([refused.code, refused.out + refused.err]).toEqual([2, expect.not.stringContaining(key)])
  })

  it("asks for a secret without showing it, and no flag takes one", async () => {
    const adding = terminal("berth connection add aws typed --access-key-id AKIA0")
    await adding.shows("Secret access key (not shown):")
    adding.type("hunter2hunter2\n")
    const { code, output } = await adding.ended
    expect([code, output]).toEqual([0, expect.not.stringContaining("hunter2")])
    const bare = await shell("berth connection add aws bare --access-key-id AKIA0")
    expect([bare.code, bare.err]).toEqual([2, expect.stringContaining("give --from-file FILE")])
    expect((await shell("berth connection add aws bare --secret-access-key x")).code).toBe(2)
  })
})

describe("completion", () => {
  // Generated names never begin like this one.
  beforeAll(async () => {
    await shell(`${RUN} --detach --yes --name qq-completed -- -c true`)
  })

  /** Makes a folder with the program \`berth\`, for shells that look for it. */
  const withProgram = async (): Promise<Record<string, string>> => {
    const programs = join(folder, "bin")
    await mkdir(programs, { recursive: true })
    await writeFile(join(programs, "berth"), `#!/bin/sh\nexec ${berth} "$@"\n`, { mode: 0o755 })
    return { ...variables, HOME: folder, PATH: `${programs}:${process.env["PATH"]}` }
  }

  fishNeeded.it("fish completes commands, flags and the names of jobs", async () => {
    const env = { ...process.env, ...(await withProgram()) }
    const complete = async (line: string) => {
      const script = `berth completion fish | source; complete -C '${line}'`
      const { stdout } = await promisify(execFile)("fish", ["--no-config", "-c", script], { env })
      return stdout.trim().split("\n")
    }
    expect(await complete("berth con")).toEqual(["connection", "context"])
    expect(await complete("berth ps --status ru")).toEqual(["running"])
    expect(await complete("berth show qq")).toEqual(["qq-completed"])
    expect(await complete("berth connection add az")).toEqual(["azure"])
  })

  zshNeeded.it("zsh completes commands, flags and the names of jobs", async () => {
    const session = onTerminal("zsh -f -i", await withProgram())
    // The line editor is ready: what is typed before may be lost.
    await session.shows("\u001b[?2004h")
    session.type("autoload -U compinit; compinit -u -d /dev/null; source <(berth completion zsh); echo rea''dy\n")
    await session.shows("ready\r\n")
    for (const [typed, shown] of [
      ["berth offe\t", "berth offers"],
      ["berth ps --status ru\t", "berth ps --status running"],
      ["berth show qq\t", "berth show qq-completed"],
    ] as const) {
      session.type(typed)
      await session.shows(shown)
      session.type("\u0015")
    }
    session.type("exit\n")
    expect((await session.ended).code).toBe(0)
  })

  it("bash completes commands, flags and the names of jobs", async () => {
    const complete = async (...words: string[]) => {
      const list = words.map((word) => `'${word}'`).join(" ")
      const script = `b() { ${berth} "$@"; }; berth() { b "$@"; }; source <(b completion bash); COMP_WORDS=(${list}); COMP_CWORD=${words.length - 1}; _berth; printf '%s\\n' "\${COMPREPLY[@]}"`
      const { stdout } = await promisify(execFile)("bash", ["-c", script], { env: { ...process.env, ...variables } })
      return stdout.trim().split("\n")
    }
    expect(await complete("berth", "con")).toEqual(["context", "connection"])
    expect(await complete("berth", "cron", "pa")).toEqual(["pause"])
    expect(await complete("berth", "run", "--spot")).toEqual(["--spot", "--spot-first"])
    expect(await complete("berth", "show", "qq")).toEqual(["qq-completed"])
    expect(await complete("berth", "ps", "--status", "ru")).toEqual(["running"])
  })
})
