import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { defined } from "../core/apis/defined.ts"
import { usageError } from "./exit.ts"

/** Tokens of a person who is signed in, and how to renew them. */
export interface SignIn {
  accessToken: string
  refreshToken?: string
  /** ISO time at which the access token ends. */
  expiresAt?: string
  issuer: string
  clientId: string
  /** Resource that the token is for (RFC 8707). */
  resource?: string
}

/** A Berth and the credential for it. */
export interface Context {
  /** URL without `/1`, such as https://berth.example.com. */
  url: string
  /** Project in `/projects/<id>/1`; absent if the host of the URL is the project's own. */
  project?: string
  key?: string
  signIn?: SignIn
  /** Shell command that prints a token. It is only from the environment. */
  tokenCommand?: string
}

/** Content of the configuration file. */
export interface Config {
  current?: string
  contexts: Record<string, Context>
}

export type Environment = Readonly<Record<string, string | undefined>>

/** Variable with a shell command that prints a token. */
export const TOKEN_COMMAND = "BERTH_TOKEN_COMMAND"

/** Permissions: the file holds credentials. */
const FILE_MODE = 0o600

/** Age at which a turn counts as left by a dead process, milliseconds. A renewal takes less. The Python package has the same. */
const TURN_MS = 60_000
/** Pause before the next try to take the turn, milliseconds. */
const TURN_PAUSE_MS = 50

/** Returns the folder of the command's configuration, which has credentials: `~/.config/berth`. */
export function configFolder(environment: Environment): string {
  const home = environment["XDG_CONFIG_HOME"] || join(environment["HOME"] ?? homedir(), ".config")
  return join(home, "berth")
}

/** The configuration file, `~/.config/berth/config.json`. */
export class ConfigFile {
  readonly path: string

  constructor(environment: Environment) {
    this.path = join(configFolder(environment), "config.json")
  }

  /** Returns the content; empty if there is no file. @throws Failure if it can't be read */
  read(): Config {
    let text: string
    try {
      text = readFileSync(this.path, "utf8")
      // An editor or a copy may have made it readable for others.
      if ((statSync(this.path).mode & 0o077) !== 0) chmodSync(this.path, FILE_MODE)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return { contexts: {} }
      throw usageError(`${this.path} can't be read: ${(error as Error).message}`)
    }
    try {
      const { current, contexts = {} } = JSON.parse(text) as Partial<Config>
      return { contexts, ...defined({ current }) }
    } catch {
      throw usageError(`${this.path} is no JSON: correct or delete it, then run berth login.`)
    }
  }

  /** Replaces the content at once, so that no reader sees a part of it. */
  write(config: Config): void {
    mkdirSync(dirname(this.path), { recursive: true, mode: 0o700 })
    const next = `${this.path}.${process.pid}`
    writeFileSync(next, `${JSON.stringify(config, undefined, 2)}\n`, { mode: FILE_MODE })
    renameSync(next, this.path)
  }

  /** Changes the content as it is now. */
  change(change: (config: Config) => Config): void {
    this.write(change(this.read()))
  }

  /**
   * Runs `work` once no other process is in its turn, of the command line or of the Python package. The turn is a folder
   * beside the file: of all that try, one creates it.
   * @throws the signal's reason if it is aborted meanwhile
   */
  async inTurn<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const turn = `${this.path}.turn`
    while (!takeTurn(turn)) await sleep(TURN_PAUSE_MS, undefined, { signal })
    try {
      return await work()
    } finally {
      rmSync(turn, { recursive: true, force: true })
    }
  }
}

/** Takes the turn. Returns false while another process has it. Removes a turn that a dead process has left. */
function takeTurn(turn: string): boolean {
  try {
    mkdirSync(turn)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
    const began = statSync(turn, { throwIfNoEntry: false })?.mtimeMs
    if (began !== undefined && Date.now() - began > TURN_MS) rmSync(turn, { recursive: true, force: true })
    return false
  }
}

/** The context of a command, and the place that it comes from. */
export interface Chosen {
  /** Name in the configuration; undefined for the environment. */
  name: string | undefined
  context: Context
}

export interface Choice {
  /** --context */
  context?: string | undefined
  /** --project */
  project?: string | undefined
}

/**
 * Returns the context of a command. BERTH_URL with BERTH_API_KEY, BERTH_TOKEN or BERTH_TOKEN_COMMAND comes first, then
 * --context, then the current context. @throws Failure if there is none, or if the environment contradicts --context
 */
export function chooseContext(config: Config, environment: Environment, choice: Choice): Chosen {
  const chosen = fromEnvironment(environment, choice) ?? fromConfig(config, choice)
  const { project = chosen.context.project } = choice
  return project === undefined ? chosen : { ...chosen, context: { ...chosen.context, project } }
}

function fromEnvironment(environment: Environment, { context }: Choice): Chosen | undefined {
  const { BERTH_URL: url, BERTH_API_KEY: key, BERTH_TOKEN: token, BERTH_PROJECT: project } = environment
  const command = environment[TOKEN_COMMAND]
  if (!url || !(key || token || command)) return undefined
  if (context !== undefined)
    throw usageError(`BERTH_URL is set, and it comes before --context ${context}. Unset BERTH_URL, or omit --context.`)
  const given = token ? { signIn: { accessToken: token, issuer: "", clientId: "" } } : { tokenCommand: command ?? "" }
  return { name: undefined, context: { url: parseUrl(url), ...(project && { project }), ...(key ? { key } : given) } }
}

function fromConfig({ current, contexts }: Config, { context: name = current }: Choice): Chosen {
  if (name === undefined)
    throw usageError("There is no context. Run `berth login URL`, or set BERTH_URL and BERTH_API_KEY.")
  const context = contexts[name]
  if (context !== undefined) return { name, context }
  const known = Object.keys(contexts).join(", ") || "none"
  throw usageError(`There is no context ${name}; known: ${known}. \`berth login URL\` creates one.`)
}

/** Returns a URL without a trailing `/` or `/1`. @throws Failure if it isn't a URL of HTTP */
export function parseUrl(text: string): string {
  const full = /^https?:\/\//.test(text) ? text : `https://${text}`
  if (!URL.canParse(full)) throw usageError(`${text} is no URL, such as https://berth.example.com`)
  return full.replace(/\/+$/, "").replace(/\/1$/, "")
}

/** Returns the base URL of the project's operations, up to `/1`. */
export function projectUrl({ url, project }: Context): string {
  return project === undefined ? `${url}/1` : `${url}/projects/${encodeURIComponent(project)}/1`
}

/** Returns the base URL of the operations on organizations and projects, which belong to no project. */
export function accountUrl({ url }: Context): string {
  return `${url}/1`
}
