import { Command } from "commander"
import { type Credential, readBody } from "../client/client.ts"
import { type Call, Commands, globalOptions, type Process } from "./command.ts"
import { addAccountCommands } from "./commands/accounts.ts"
import { addAdviceCommand } from "./commands/advice.ts"
import { addApplyCommand } from "./commands/apply.ts"
import { addArrayCommands } from "./commands/array.ts"
import { addAttachCommand } from "./commands/attach.ts"
import { addBudgetCommands } from "./commands/budget.ts"
import { addCheckCommand } from "./commands/check.ts"
import { addCompletionCommands } from "./commands/completion.ts"
import { addConnectionCommands } from "./commands/connection.ts"
import { addContextCommands } from "./commands/contexts.ts"
import { addCostCommand } from "./commands/cost.ts"
import { addCronCommands } from "./commands/cron.ts"
import { addDebugCommand } from "./commands/debug.ts"
import { addDiscoverCommands } from "./commands/discover.ts"
import { addExecCommand } from "./commands/exec.ts"
import { addForwardCommand } from "./commands/forward.ts"
import { addIdleCommands } from "./commands/idle.ts"
import { addJobCommands } from "./commands/jobs.ts"
import { addKeyCommands } from "./commands/keys.ts"
import { addLoginCommand } from "./commands/login.ts"
import { addLogsCommand } from "./commands/logs.ts"
import { addMachineCommands } from "./commands/machine.ts"
import { addOffersCommand } from "./commands/offers.ts"
import { addPsCommand } from "./commands/ps.ts"
import { addRunCommands } from "./commands/run.ts"
import { addSkillCommand } from "./commands/skill.ts"
import { addSmokeCommand } from "./commands/smoke.ts"
import { addTopCommand } from "./commands/top.ts"
import { addWebhookCommands } from "./commands/webhook.ts"
import { type Chosen, ConfigFile, type Environment, type SignIn } from "./context.ts"
import { EXIT, Failure, toFailure } from "./exit.ts"
import { LastSubmissions } from "./last.ts"
import { isRenewalDue, renewSignIn } from "./sign-in.ts"
import { type Streams, Terminal } from "./terminal.ts"
import { CommandTokens } from "./token-command.ts"

export interface Invocation {
  argv: readonly string[]
  environment: Environment
  streams: Streams
  signal: AbortSignal
  version: string
}

/** Runs one command. Returns the exit code. All failures are reported on standard error. */
export async function runCommand({ argv, environment, streams, signal, version }: Invocation): Promise<number> {
  const own = argv.includes("--") ? argv.slice(0, argv.indexOf("--")) : argv
  const hasColor = !environment["NO_COLOR"] && environment["TERM"] !== "dumb" && !own.includes("--no-color")
  const terminal = new Terminal(streams, hasColor, signal)
  const config = new ConfigFile(environment)
  const process: Process = {
    environment,
    config,
    last: new LastSubmissions(environment),
    terminal,
    signal,
    version,
    credentialOf: new Credentials(config, new CommandTokens(environment, signal), signal).of,
  }
  const commands = new Commands(process)
  try {
    await programOf(commands, version, streams, terminal).parseAsync(argv, { from: "user" })
    return commands.exitCode
  } catch (error) {
    if (signal.aborted) return typeof signal.reason === "number" ? signal.reason : EXIT.interrupted
    const failure = toFailure(error)
    if (failure.message !== "") terminal.warn(`${terminal.noted("red", "berth:")} ${failure.message}`)
    return failure.code
  }
}

/** Credentials of contexts. A token that ends, or was rejected, is renewed, and the new one is kept. */
class Credentials {
  readonly #config: ConfigFile
  readonly #commandTokens: CommandTokens
  readonly #signal: AbortSignal
  /** Renewal that is under way. Issuers revoke all tokens if a refresh token is used twice, also by two processes. */
  #renewal: Promise<SignIn> | undefined

  constructor(config: ConfigFile, commandTokens: CommandTokens, signal: AbortSignal) {
    this.#config = config
    this.#commandTokens = commandTokens
    this.#signal = signal
  }

  readonly of = async (chosen: Chosen, rejected?: string): Promise<Credential | undefined> => {
    const { key, signIn, tokenCommand } = chosen.context
    if (key !== undefined) return { key }
    if (tokenCommand !== undefined) return { token: await this.#commandTokens.of(tokenCommand, rejected) }
    if (signIn === undefined) return undefined
    if (!isRenewalDue(signIn, new Date(), rejected)) return { token: signIn.accessToken }
    this.#renewal ??= this.#renewSignIn(chosen, rejected).finally(() => {
      this.#renewal = undefined
    })
    return { token: (await this.#renewal).accessToken }
  }

  /** Renews the tokens that are stored now: another process may have renewed them since this one read them. */
  async #renewSignIn({ name = "", context }: Chosen, rejected: string | undefined): Promise<SignIn> {
    const stored = () => this.#config.read().contexts[name]?.signIn
    const renew = async (): Promise<SignIn> => {
      const old = stored()
      if (old === undefined) throw new Failure(EXIT.forbidden, "You have signed out. Run berth login.")
      if (!isRenewalDue(old, new Date(), rejected)) return old
      const next = await renewSignIn(old, this.#signal)
      this.#config.change(({ contexts, ...rest }) => {
        const now = contexts[name]
        return { ...rest, contexts: now === undefined ? contexts : { ...contexts, [name]: { ...now, signIn: next } } }
      })
      return next
    }
    context.signIn = await this.#config.inTurn(renew, this.#signal)
    return context.signIn
  }
}

/** Returns the command line of `berth`. */
export function programOf(
  commands: Commands,
  version: string,
  { stdout, stderr }: Streams,
  terminal: Terminal,
): Command {
  const program = new Command("berth")
    // Commands take this over, so it comes before them.
    .configureOutput({
      writeOut: (text) => void stdout.write(text),
      writeErr: (text) => void stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error: /, `${terminal.noted("red", "berth:")} `)),
    })
    .description("Runs container jobs on the cheapest cloud VM that fits.")
    .version(version, "-V, --version")
    .enablePositionalOptions()
    .showSuggestionAfterError()
    .exitOverride((error) => {
      throw new Failure(error.exitCode === 0 ? 0 : EXIT.usage, "")
    })
    .showHelpAfterError("berth --help lists the commands.")
    .configureHelp({ showGlobalOptions: false })
    .addHelpText("after", FIRST_COMMANDS)
  for (const option of globalOptions()) program.addOption(option)
  addRunCommands(commands, program)
  addAttachCommand(commands, program)
  addExecCommand(commands, program)
  addDebugCommand(commands, program)
  addForwardCommand(commands, program)
  addPsCommand(commands, program)
  addTopCommand(commands, program)
  addJobCommands(commands, program)
  addLogsCommand(commands, program)
  addApplyCommand(commands, program)
  addOffersCommand(commands, program)
  addCostCommand(commands, program)
  addAdviceCommand(commands, program)
  addIdleCommands(commands, program)
  addBudgetCommands(commands, program)
  addLoginCommand(commands, program)
  addContextCommands(commands, program)
  addCronCommands(commands, program)
  addArrayCommands(commands, program)
  addConnectionCommands(commands, program)
  addWebhookCommands(commands, program)
  addMachineCommands(commands, program)
  addKeyCommands(commands, program)
  addDiscoverCommands(commands, program)
  addAccountCommands(commands, program)
  addCheckCommand(commands, program)
  addSmokeCommand(commands, program)
  addSkillCommand(commands, program)
  addCompletionCommands(commands, program)
  commands.add(program, {
    usage: "version",
    summary: "Print the version of this command, and of the API that it uses.",
    examples: [["berth version --json", "for programs"]],
    run: async (call) => {
      const { api, reason } = await apiVersion(call)
      if (call.isForProgram) await call.printValue({ client: version, api })
      else await call.terminal.line(`berth ${version}${api === null ? "" : `, API ${api}`}`)
      if (reason !== undefined)
        call.terminal.warn(call.terminal.noted("dim", `The API's version is unknown. ${reason}`))
      return 0
    },
  })
  return program
}

/** Returns the version of the API, or null and the reason why it is unknown. The command's own version needs no API. */
async function apiVersion(call: Call<unknown>): Promise<{ api: string | null; reason?: string }> {
  try {
    const { version } = await readBody(call.client().api.GET("/whoami"))
    return { api: version }
  } catch (error) {
    call.signal.throwIfAborted()
    return { api: null, reason: toFailure(error).message }
  }
}

const FIRST_COMMANDS = `
Examples:
  berth login https://berth.example.com                    sign in
  berth run --image alpine:3.22 -- echo Ahoy               plan, price, log, exit code
  berth ps -w                                              the jobs that have not ended, live

berth COMMAND --help has the flags and examples of a command. docs/cli.md describes exit codes and contexts.`
