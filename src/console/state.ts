import { batch, computed, signal } from "@preact/signals"
import { BerthClient, type ClientOptions, type Credential, readBody, type Schemas } from "../client/client.ts"
import { delay } from "../client/delay.ts"
import { ApiError } from "../client/errors.ts"
import { type Change, readChanges } from "../client/events.ts"
import type { Zone } from "./format.ts"
import { beginSession, endSession, forgetPerson, session, shareSession, signOutOtherTabs } from "./session.ts"

export type WhoAmI = Schemas["WhoAmI"]

/** Document `/.well-known/berth`. */
export interface Installation {
  version: string
  issuer: string | null
  client_id: string | null
  audience: string | null
  /** Client of the console; null without sign-in. */
  console: { client_id: string; audience: string; scope: string; exchange: "browser" | "facade" } | null
  default_project: string | null
  /** Domain of the ports of jobs; null: browsers reach none. */
  session_domain: string | null
}

/** Path of the console on its host. */
export const BASE = "/console"

/** Page to which the issuer sends the browser back. */
export const RETURN_PATH = `${BASE}/signed-in`

/** Proof of the present sign-in. */
export const credential = computed(() => session.value?.credential)

/** Reason for which the last sign-in ended. */
export const signInNote = signal<string>()

/** Project that the API accepts the credential for. */
export const me = signal<WhoAmI>()

/** State of the connection: `connecting` before the first answer, `offline` after failures. */
export const connection = signal<"connecting" | "live" | "offline">("connecting")

/** Present time, milliseconds. It moves once a second. */
export const now = signal(Date.now())
setInterval(() => {
  now.value = Date.now()
}, 1000)

/** Settings of the reader that stay in this browser. */
export const zone = signal<Zone>(localStorage.getItem("zone") === "utc" ? "utc" : "local")
export const theme = signal(localStorage.getItem("theme") ?? "auto")
zone.subscribe((value) => localStorage.setItem("zone", value))
theme.subscribe((value) => {
  localStorage.setItem("theme", value)
  document.documentElement.dataset["theme"] = value
})

export function may(role: "developer" | "admin"): boolean {
  const own = me.value?.role
  return own === "admin" || own === role
}

function clientAt(path: string, more: Partial<Pick<ClientOptions, "onRetry" | "credential">> = {}): BerthClient {
  return new BerthClient({ baseUrl: `${location.origin}${path}/1`, credential: async () => credential.value, ...more })
}

/** Client of the operations that belong to no project. */
export const accounts = clientAt("")

/** Project of the page's address. */
export const project = signal<string>()

/** Client of the project's operations. */
export const client = computed(() => clientAt(projectPath()))

function projectPath(): string {
  return pathOf(project.value ?? "")
}

function pathOf(name: string): string {
  return `/projects/${encodeURIComponent(name)}`
}

/** Returns the project that an address of the console names. */
export function projectIn(path: string): string | undefined {
  const [, encoded] = /^\/console\/projects\/([^/?#]+)/.exec(path) ?? []
  return encoded === undefined ? undefined : decodeURIComponent(encoded)
}

/** Returns an address of the console in the present project. */
export function at(path: string): string {
  return BASE + projectPath() + path
}

/** Asks the API who the caller is in a project. @throws ApiError */
export async function signInTo(name: string, proof: Credential): Promise<void> {
  try {
    // The page of the sign-in stays until the API accepts the credential, so that it can show an error.
    const { api } = clientAt(pathOf(name), { credential: async () => proof })
    const caller = await readBody(api.GET("/whoami"))
    batch(() => {
      beginSession({ credential: proof, project: name })
      project.value = name
      me.value = caller
      signInNote.value = undefined
    })
  } catch (error) {
    me.value = undefined
    if (session.value !== undefined && isRejected(error)) signOut(ENDED)
    throw error
  }
}

/**
 * Returns false if the API rejects the token of a person.
 * @param path address that the person returns to: the host of a project answers its own operations only
 */
export async function isAccepted(token: string, path: string): Promise<boolean> {
  const name = projectIn(path)
  const { api } = clientAt(name === undefined ? "" : pathOf(name), { credential: async () => ({ token }) })
  const asked: Promise<unknown> = name === undefined ? api.GET("/organizations") : api.GET("/whoami")
  return asked.then(
    () => true,
    (error: unknown) => !isRejected(error),
  )
}

/** Note after the API has rejected a credential that it accepted before. */
export const ENDED = "Your sign-in has ended."

/** Ends the sign-in of this tab. */
export function signOut(note?: string): void {
  batch(() => {
    endSession()
    me.value = undefined
    signInNote.value = note
  })
}

/** Ends the sign-in of all tabs, as a person asked for. */
export function signOutEverywhere(): void {
  leaveTab()
  signOutOtherTabs()
}

/** Ends the sign-in of this tab for good: the issuer isn't asked for another one. */
function leaveTab(note?: string): void {
  forgetPerson()
  signOut(note)
}

/** Takes up the sign-in that this browser has. Called once, when the page starts. */
export function resume(): void {
  shareSession(
    () => projectIn(location.pathname),
    () => leaveTab("You signed out in another tab."),
  )
}

/** True if the API doesn't accept the credential. */
export function isRejected(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401
}

let documentRead: Promise<Installation> | undefined

/** Returns the facts of this installation. */
export function installation(): Promise<Installation> {
  documentRead ??= fetch("/.well-known/berth").then((response) => response.json() as Promise<Installation>)
  return documentRead
}

type Listener = (change: Change) => void
const listeners = new Set<Listener>()

/** Calls a listener with each change of the project's objects. Returns a function that ends that. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener)
  return () => {
    listeners.delete(listener)
  }
}

/** Longest time between two tries to reach the API, seconds. */
const RETRY_SECONDS = 5

/** Follows the changes of the project until the signal. A stream that fails is opened again. */
export async function followChanges(signal_: AbortSignal): Promise<void> {
  const stream = clientAt(projectPath(), {
    onRetry: () => {
      connection.value = "offline"
    },
  })
  const onOpen = (): void => {
    connection.value = "live"
  }
  while (!signal_.aborted) {
    try {
      for await (const change of readChanges(stream, signal_, onOpen))
        for (const listener of listeners) listener(change)
    } catch (error) {
      if (signal_.aborted) return
      if (isRejected(error)) return signOut(ENDED)
      connection.value = "offline"
      await Promise.race([delay(RETRY_SECONDS * 1000, signal_), online(signal_)]).catch(() => undefined)
    }
  }
}

function online(signal_: AbortSignal): Promise<void> {
  return new Promise((resolve) => addEventListener("online", () => resolve(), { once: true, signal: signal_ }))
}
