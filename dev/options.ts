import { homedir } from "node:os"
import { join, resolve } from "node:path"
import { Command, Option } from "commander"
import { toOption } from "../src/options/table.ts"
import { absolute } from "../src/options/values.ts"
import { type LogLevel, type RuntimeChoice, SHARED_OPTIONS } from "../src/options.ts"
import { cacheDirectory } from "./controlplane/programs.ts"

/** Options of a stack on one machine. */
export interface LocalOptions {
  /** Folder of all its data. */
  dataDir: string
  runtime: RuntimeChoice
  /** Path of the Docker engine's socket, if it was named. Default: Docker's own. */
  dockerSocket?: string
  /** A folder with kube-apiserver, kube-controller-manager and etcd. */
  assetsDir?: string
  /** Folder for such binaries that were downloaded or built. */
  cacheDir: string
  /** File of a bundled agent for the VMs. Default: the sources. */
  agentProgram?: string
  logLevel: LogLevel
}

export interface ServeOptions extends LocalOptions {
  port: number
  /** Folder of configurations, in which the command `berth` has its own. */
  configHome: string
}

/** Command and options of the command line. */
export type Invocation = { command: "serve"; options: ServeOptions } | { command: "demo"; options: LocalOptions }

/**
 * Reads the command line and the environment. If there is nothing to run, prints help or an error and ends the process.
 * @param argv as process.argv
 */
export async function readInvocation(argv: string[]): Promise<Invocation> {
  let invocation: Invocation | undefined
  const chosen = (chosenInvocation: Invocation) => {
    invocation = chosenInvocation
  }
  const program = new Command("berth")
    .description("Runs Berth with its own Kubernetes control plane and its local cloud on this machine.")
    .showHelpAfterError()
    .addCommand(serveCommand(chosen))
    .addCommand(demoCommand(chosen))
  await program.parseAsync(argv)
  if (invocation === undefined) return program.help({ error: true })
  return invocation
}

type Choose = (invocation: Invocation) => void

function serveCommand(choose: Choose): Command {
  return withLocalOptions(new Command("serve"), ".berth")
    .description("Run everything on this machine until Ctrl-C: control plane, operator, façade, local cloud.")
    .addOption(
      toOption({
        ...SHARED_OPTIONS.port,
        about: "port of the REST API; the local issuer, for sign-in, takes the port after it",
      }),
    )
    .addOption(
      new Option(
        "--config-home <path>",
        "folder of configurations; its berth/config.json gets the context `local`, or `local-2` beside another stack's",
      )
        .env("XDG_CONFIG_HOME")
        .default(join(homedir(), ".config"))
        .argParser(absolute),
    )
    .action((options: ServeOptions) => choose({ command: "serve", options }))
}

function demoCommand(choose: Choose): Command {
  return withLocalOptions(new Command("demo"), join(".berth", "demo"))
    .description("Run the sample jobs on this machine, show how they end, and clean up.")
    .action((options: LocalOptions) => choose({ command: "demo", options }))
}

function withLocalOptions(command: Command, dataDir: string): Command {
  return command
    .addOption(
      new Option("--data-dir <path>", "folder of all data and logs").default(resolve(dataDir)).argParser(absolute),
    )
    .addOption(toOption(SHARED_OPTIONS.runtime))
    .addOption(toOption(SHARED_OPTIONS.dockerSocket))
    .addOption(
      new Option("--assets-dir <path>", "folder with kube-apiserver, kube-controller-manager and etcd")
        .env("KUBEBUILDER_ASSETS")
        .argParser(absolute),
    )
    .addOption(
      new Option("--cache-dir <path>", "folder that caches these programs after a download or build")
        .env("BERTH_CACHE_DIR")
        .default(cacheDirectory(process.env["XDG_CACHE_HOME"]))
        .argParser(absolute),
    )
    .addOption(
      new Option(
        "--agent-program <path>",
        "bundled agent for the VMs, such as dist/agent.mjs: it starts in half of the time that the sources take",
      ).argParser(absolute),
    )
    .addOption(toOption(SHARED_OPTIONS.logLevel))
}
