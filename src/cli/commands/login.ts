import { spawn } from "node:child_process"
import { type Command, Option } from "commander"
import { groupsWarningFor, listProjects } from "../../client/accounts.ts"
import { BerthClient, readBody, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { defined } from "../../core/apis/defined.ts"
import type { Call, Commands } from "../command.ts"
import { accountUrl, type Context, parseUrl, projectUrl } from "../context.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { installationAt } from "../installation.ts"
import { hasBrowserFlow, signInByBrowser, signInByDevice } from "../sign-in.ts"
import { formatTime } from "../table.ts"
import { shown } from "../terminal.ts"

interface LoginFlags {
  key?: string
  device?: boolean
  issuer?: string
  clientId?: string
  resource?: string
}

type WhoAmI = Schemas["WhoAmI"]

/** `login`: creates a context, by a browser, another device or an API key. */
export function addLoginCommand(commands: Commands, program: Command): void {
  commands.add<LoginFlags>(program, {
    usage: "login [url]",
    summary: "Sign in to an installation, and make it the current context.",
    more:
      "Opens a browser. Without one, shows an address and a code for any other device. Without a URL, signs in to the\n" +
      "current context again. --context names the new context.",
    examples: [
      ["berth login https://berth.example.com", "sign in as a person"],
      ["berth login https://berth.example.com --key - < key.txt", "with an API key, from standard input"],
      ["berth login https://berth.example.com --project reports-77ab01c4d2", "choose one of your projects"],
    ],
    options: [
      new Option("--key <->", "read an API key from standard input, or ask for it"),
      new Option("--device", "sign in with a browser on another device"),
      new Option("--issuer <url>", "issuer; default: the one that the installation names"),
      new Option("--client-id <id>", "client at the issuer; default: the one that the installation names"),
      new Option("--resource <uri>", "resource of the token, if the issuer needs one (RFC 8707)"),
    ],
    run: login,
  })
}

async function login(call: Call<LoginFlags>): Promise<number> {
  const { key, project } = call.options
  if (key !== undefined && key !== "-")
    throw usageError("A key in a command line is visible to other users: --key - reads it from standard input.")
  const { url, name } = targetOf(call)
  const wanted: Context = { url, ...defined({ project }) }
  const signedIn = key === undefined ? await asPerson(call, wanted) : { ...wanted, key: await keyFrom(call) }
  const { context, caller } = await withProject(call, signedIn)
  call.config.change(({ contexts }) => ({ current: name, contexts: { ...contexts, [name]: context } }))
  call.terminal.progress(
    `Signed in to ${url}${caller === undefined ? "" : ` ${roleText(caller)}`}. The context is now ${name}.`,
  )
  call.terminal.progress(caller === undefined ? NO_PROJECT : "Try: berth ps")
  const warning =
    caller === undefined ? await groupsWarningFor(clientFor(call, accountUrl(context), context)) : caller.warning
  if (warning != null) call.terminal.warn(warning)
  warnOfEnvironment(call)
  return 0
}

/** Warns if later commands use another context than the one that was chosen. */
export function warnOfEnvironment({ terminal, environment }: Call<unknown>): void {
  const { BERTH_URL, BERTH_API_KEY, BERTH_TOKEN } = environment
  if (BERTH_URL && (BERTH_API_KEY || BERTH_TOKEN))
    terminal.warn(`BERTH_URL is set to ${BERTH_URL}, and comes before every context. Unset it to use this one.`)
}

const NO_PROJECT = `You are a member of no project yet. Create one:
  berth org create NAME
  berth project use $(berth project create NAME)`

function roleText({ role, kind, id, name, project_id, expires_at }: WhoAmI): string {
  const until = expires_at === null ? "" : `, until ${formatTime(expires_at)}`
  return `as ${kind} ${shown(name ?? id)}, ${role} of ${project_id}${until}`
}

/** Returns the URL to sign in to, and the name of its context. */
function targetOf({ args: [given], options: { context: named }, config }: Call<LoginFlags>): {
  url: string
  name: string
} {
  const { contexts, current } = config.read()
  const known = named ?? current
  if (given === undefined) {
    const context = known === undefined ? undefined : contexts[known]
    if (known === undefined || context === undefined)
      throw usageError("Give the URL: berth login https://berth.example.com")
    return { url: context.url, name: known }
  }
  const url = parseUrl(given)
  return { url, name: named ?? new URL(url).hostname }
}

async function keyFrom({ terminal }: Call<LoginFlags>): Promise<string> {
  const text = terminal.isInteractive
    ? await terminal.secret("API key", "give it on standard input, with --key -")
    : await terminal.input("an API key")
  if (text.trim() === "") throw usageError("Standard input has no key.")
  return text.trim()
}

async function asPerson(call: Call<LoginFlags>, wanted: Context): Promise<Context> {
  const { issuer: givenIssuer, clientId: givenClient, resource, device } = call.options
  const installation = await installationAt(wanted.url, call.signal)
  const issuer = givenIssuer ?? installation?.issuer
  const clientId = givenClient ?? installation?.client_id
  if (issuer == null || clientId == null)
    throw new Failure(
      EXIT.failed,
      `${wanted.url} names no issuer at which people sign in. Use an API key: berth login ${wanted.url} --key -`,
    )
  const target = { issuer, clientId, resource, signal: call.signal }
  const opener = device === true || !call.terminal.isInteractive ? undefined : browserOf(call)
  if (opener !== undefined && (await hasBrowserFlow(target))) {
    const signIn = await signInByBrowser(target, (address) => {
      call.terminal.warn(`Opening a browser. If none opens, open ${address}\nor stop, and run berth login --device.`)
      opener(address)
    })
    return { ...wanted, signIn }
  }
  const signIn = await signInByDevice(target, (address, code) =>
    call.terminal.warn(`Open ${address} and confirm if it shows the code ${code}.`),
  )
  return { ...wanted, signIn }
}

/** Returns a function that opens an address; undefined if this session has no browser. */
function browserOf({ environment }: Call<unknown>): ((address: string) => void) | undefined {
  const { BROWSER, DISPLAY, WAYLAND_DISPLAY, SSH_CONNECTION } = environment
  const hasScreen = process.platform === "darwin" || ((DISPLAY || WAYLAND_DISPLAY) && !SSH_CONNECTION)
  const program = BROWSER || (hasScreen ? (process.platform === "darwin" ? "open" : "xdg-open") : undefined)
  if (program === undefined) return undefined
  return (address) => {
    const child = spawn(program, [address], { detached: true, stdio: "ignore" })
    // The address is shown, too.
    child.on("error", () => undefined).unref()
  }
}

/**
 * Returns the context with its project, which the credential or the person's choice gives, and the caller there. A
 * person without a project gets a context without one.
 */
async function withProject(
  call: Call<LoginFlags>,
  context: Context,
): Promise<{ context: Context; caller: WhoAmI | undefined }> {
  const ask = (of: Context) => readBody(clientFor(call, projectUrl(of), of).api.GET("/whoami"))
  if (context.project !== undefined) return { context, caller: await ask(context) }
  try {
    return { context, caller: await ask(context) }
  } catch (error) {
    // A host without a project: the person chooses one.
    if (!(error instanceof ApiError) || context.signIn === undefined || ![400, 403, 404].includes(error.status))
      throw error
  }
  const projects = await listProjects(clientFor(call, accountUrl(context), context))
  const [only] = projects
  if (only === undefined) return { context, caller: undefined }
  if (projects.length > 1) {
    const list = projects.map(({ id, displayName }) => `\n  ${id}  ${shown(displayName)}`).join("")
    throw usageError(`You are a member of several projects: give --project.${list}`)
  }
  const chosen = { ...context, project: only.id }
  return { context: chosen, caller: await ask(chosen) }
}

function clientFor({ signal, version }: Call<unknown>, baseUrl: string, { key, signIn }: Context): BerthClient {
  const credential = async () => (key !== undefined ? { key } : signIn && { token: signIn.accessToken })
  return new BerthClient({ baseUrl, credential, signal, userAgent: `berth-cli/${version}` })
}
